//! `long double` and its complex numbers: the arithmetic of C's type in software, since Rust has no such type.

use super::{LOCK, Number, Op, Operation, complex, real};
use rustc_apfloat::Float;

/// C's type: 80 bits in 16 bytes.
#[cfg(target_arch = "x86_64")]
type Raw = rustc_apfloat::ieee::X87DoubleExtended;
/// C's type: IEEE's 128 bits.
#[cfg(not(target_arch = "x86_64"))]
type Raw = rustc_apfloat::ieee::Quad;

/// Bytes that a number takes.
const BYTES: usize = 16;
/// Most numbers of an element.
const PARTS: usize = 2;

#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Long(Raw);

impl Default for Long {
    fn default() -> Long {
        Long(Raw::ZERO)
    }
}

impl Number for Long {
    fn one() -> Long {
        Long(Raw::from_u128(1).value)
    }

    fn plus(self, other: Long) -> Long {
        Long((self.0 + other.0).value)
    }

    fn minus(self, other: Long) -> Long {
        Long((self.0 - other.0).value)
    }

    fn times(self, other: Long) -> Long {
        Long((self.0 * other.0).value)
    }
}

impl Long {
    /// Number at `at`; zero beyond the end.
    fn read(bytes: &[u8], at: usize) -> Long {
        let mut whole = [0; BYTES];
        if let Some(part) = bytes.get(at..at + BYTES) {
            whole.copy_from_slice(part);
        }
        let used = u128::MAX >> (128 - Raw::BITS);
        Long(Raw::from_bits(u128::from_le_bytes(whole) & used))
    }

    fn write(self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0.to_bits().to_le_bytes());
    }
}

impl Operation {
    /// [`Operation::apply`] for numbers of this type.
    ///
    /// # Safety
    /// As for [`Operation::apply`].
    pub(super) unsafe fn apply_long(
        self,
        places: &[(*mut u8, usize)],
        operand: &[u8],
        before: &mut [u8],
    ) {
        let size = self.element_bytes();
        let (values, comparands) = operand.split_at(operand.len().min(before.len()));
        let mut done = 0;
        let _lock = LOCK.lock();
        for &(place, len) in places {
            for offset in (0..len).step_by(size) {
                let old = &mut before[done..done + size];
                let mut new = [0; BYTES * PARTS];
                // SAFETY: the offset lies within the place, for which the caller vouches.
                unsafe {
                    let at = place.add(offset);
                    std::ptr::copy_nonoverlapping(at, old.as_mut_ptr(), size);
                    if self.compute_long(old, (values, comparands, done), &mut new[..size]) {
                        std::ptr::copy_nonoverlapping(new.as_ptr(), at, size);
                    }
                }
                done += size;
            }
        }
    }

    /// False if the element stays as it is.
    fn compute_long(
        self,
        old: &[u8],
        (values, comparands, at): (&[u8], &[u8], usize),
        new: &mut [u8],
    ) -> bool {
        let size = new.len();
        if self.op == Op::Read {
            return false;
        }
        if self.op == Op::Write {
            new.copy_from_slice(&values[at..at + size]);
            return true;
        }
        if size == BYTES {
            let (value, comparand) = (Long::read(values, at), Long::read(comparands, at));
            let result = real(self.op, Long::read(old, 0), value, comparand);
            result.inspect(|result| result.write(new)).is_some()
        } else {
            let pair = |bytes, at| [Long::read(bytes, at), Long::read(bytes, at + BYTES)];
            let result = complex(self.op, pair(old, 0), pair(values, at), pair(comparands, at));
            let write = |[real, imaginary]: [Long; 2]| {
                let (first, second) = new.split_at_mut(BYTES);
                real.write(first);
                imaginary.write(second);
            };
            result.map(write).is_some()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Datatype;
    use super::*;
    use erd_rd::Form;

    fn bytes(number: f64) -> [u8; BYTES] {
        let wide: rustc_apfloat::ieee::Double = number.to_string().parse().expect("a number");
        let mut bytes = [0; BYTES];
        use rustc_apfloat::FloatConvert;
        let long: Raw = wide.convert(&mut false).value;
        Long(long).write(&mut bytes);
        bytes
    }

    fn one<const N: usize>(op: Op, type_: Datatype, old: [u8; N], operand: &[u8]) -> [u8; N] {
        let form = if op == Op::CswapLe { Form::Compare } else { Form::Fetch };
        let operation = Operation::new(op, type_, form).expect("known");
        let (mut cell, mut before) = (old, [0; N]);
        // SAFETY: a local array.
        unsafe { operation.apply(&[(cell.as_mut_ptr(), N)], operand, &mut before) };
        assert_eq!(before, old);
        cell
    }

    #[test]
    fn long_doubles_are_added_compared_and_swapped() {
        let type_ = Datatype::LongDouble;
        assert_eq!(one(Op::Sum, type_, bytes(1.5), &bytes(-4.0)), bytes(-2.5));
        assert_eq!(one(Op::Prod, type_, bytes(1.5), &bytes(-4.0)), bytes(-6.0));
        assert_eq!(one(Op::Max, type_, bytes(1.5), &bytes(1.25)), bytes(1.5));
        assert_eq!(one(Op::Land, type_, bytes(1.5), &bytes(2.0)), bytes(1.0));
        assert_eq!(one(Op::Write, type_, bytes(1.5), &bytes(7.0)), bytes(7.0));
        let swap = |comparand| [bytes(9.0), bytes(comparand)].concat();
        assert_eq!(one(Op::CswapLe, type_, bytes(5.0), &swap(5.0)), bytes(9.0));
        assert_eq!(one(Op::CswapLe, type_, bytes(5.0), &swap(6.0)), bytes(5.0));
    }

    #[test]
    fn more_digits_are_kept_than_a_double_has() {
        let tiny = bytes(2_f64.powi(-60));
        let sum = one(Op::Sum, Datatype::LongDouble, bytes(1.0), &tiny);
        assert_ne!(sum, bytes(1.0));
        assert_eq!(one(Op::Diff, Datatype::LongDouble, sum, &bytes(1.0)), tiny);
    }

    #[test]
    fn complex_numbers_of_two_long_doubles_are_multiplied() {
        let pair = |a, b| -> [u8; 32] { [bytes(a), bytes(b)].concat().try_into().expect("two") };
        let product = one(Op::Prod, Datatype::LongDoubleComplex, pair(1.0, 2.0), &pair(3.0, 4.0));
        assert_eq!(product, pair(-5.0, 10.0));
    }
}
