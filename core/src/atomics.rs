//! Atomic operations on memory of this host (docs/protocol.md §9).
//!
//! Aligned elements of up to 8 bytes change by the processor's compare-and-swap, so other processes and the
//! application's own atomic instructions see whole values. All others change under one lock of this process.

mod codes;
mod long;

pub use codes::{Datatype, Op};
use erd_rd::wire::remote::ATOMIC_MAX_BYTES;
use erd_rd::{Atomic, Form};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Held while an element changes that no single instruction can change.
static LOCK: Mutex<()> = Mutex::new(());

/// The type of an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Type {
    Signed,
    Unsigned,
    Float,
    Complex,
    Long,
    LongComplex,
}

/// An operation on elements of one type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    op: Op,
    form: Form,
    kind: Type,
    bits: u32,
}

/// Kind of a datatype and the bits of its elements.
fn datatype(datatype: Datatype) -> (Type, u32) {
    match datatype {
        Datatype::Int8 => (Type::Signed, 8),
        Datatype::Uint8 => (Type::Unsigned, 8),
        Datatype::Int16 => (Type::Signed, 16),
        Datatype::Uint16 => (Type::Unsigned, 16),
        Datatype::Int32 => (Type::Signed, 32),
        Datatype::Uint32 => (Type::Unsigned, 32),
        Datatype::Int64 => (Type::Signed, 64),
        Datatype::Uint64 => (Type::Unsigned, 64),
        Datatype::Int128 => (Type::Signed, 128),
        Datatype::Uint128 => (Type::Unsigned, 128),
        Datatype::Float => (Type::Float, 32),
        Datatype::Double => (Type::Float, 64),
        Datatype::FloatComplex => (Type::Complex, 64),
        Datatype::DoubleComplex => (Type::Complex, 128),
        Datatype::LongDouble => (Type::Long, 128),
        Datatype::LongDoubleComplex => (Type::LongComplex, 256),
    }
}

impl Operation {
    /// The operation of a request; `None` if there is no such operation.
    #[must_use]
    pub fn find(atomic: Atomic) -> Option<Operation> {
        Operation::numbered(atomic.op.into(), atomic.datatype.into(), atomic.form)
    }

    /// The operation by its numbers; `None` if there is none.
    #[must_use]
    pub fn numbered(op: u32, datatype: u32, form: Form) -> Option<Operation> {
        Operation::new(Op::of(op)?, Datatype::of(datatype)?, form)
    }

    /// The operation; `None` if it makes no sense.
    #[must_use]
    pub fn new(op: Op, type_: Datatype, form: Form) -> Option<Operation> {
        let (kind, bits) = datatype(type_);
        let whole = matches!(kind, Type::Signed | Type::Unsigned);
        let ordered = !matches!(kind, Type::Complex | Type::LongComplex);
        let known = match op {
            Op::Min | Op::Max => ordered && form != Form::Compare,
            Op::Sum | Op::Diff | Op::Prod | Op::Lor | Op::Land | Op::Lxor | Op::Write => {
                form != Form::Compare
            }
            Op::Bor | Op::Band | Op::Bxor => whole && form != Form::Compare,
            Op::Read => form == Form::Fetch,
            Op::Cswap | Op::CswapNe => form == Form::Compare,
            Op::CswapLe | Op::CswapLt | Op::CswapGe | Op::CswapGt => {
                ordered && form == Form::Compare
            }
            Op::Mswap => whole && form == Form::Compare,
        };
        known.then_some(Operation { op, form, kind, bits })
    }

    /// Bytes of an element.
    #[must_use]
    pub fn element_bytes(self) -> usize {
        self.bits as usize / 8
    }

    /// Most elements of one request.
    #[must_use]
    pub fn elements_max(self) -> usize {
        ATOMIC_MAX_BYTES as usize / self.element_bytes()
    }

    /// True if it changes nothing.
    #[must_use]
    pub(crate) fn reads_only(self) -> bool {
        self.op == Op::Read
    }

    /// Whether an operand of `operand_bytes` belongs to `len_bytes` of memory.
    #[must_use]
    pub fn takes(self, len_bytes: u64, operand_bytes: u64) -> bool {
        match self.form {
            Form::Compare => len_bytes.checked_mul(2) == Some(operand_bytes),
            _ if self.reads_only() => true,
            Form::Update | Form::Fetch => operand_bytes == len_bytes,
        }
    }

    /// Changes the elements of all `places` and fills `before` with their old values. The operand's second half is the
    /// comparand, where there is one.
    ///
    /// # Safety
    /// Each place is readable for its length and, unless the operation only reads, writable.
    pub(crate) unsafe fn apply(
        self,
        places: &[(*mut u8, usize)],
        operand: &[u8],
        before: &mut [u8],
    ) {
        if matches!(self.kind, Type::Long | Type::LongComplex) {
            // SAFETY: the caller's promise is the same.
            return unsafe { self.apply_long(places, operand, before) };
        }
        let size = self.element_bytes();
        let (values, comparands) = operand.split_at(operand.len().min(before.len()));
        let mut done = 0;
        for &(place, len) in places {
            for offset in (0..len).step_by(size) {
                let value = bits_of(values, done, size);
                let comparand = bits_of(comparands, done, size);
                // SAFETY: the offset lies within the place, for which the caller vouches.
                let old = unsafe {
                    self.change(place.add(offset), |old| self.compute(old, value, comparand))
                };
                before[done..done + size].copy_from_slice(&old.to_le_bytes()[..size]);
                done += size;
            }
        }
    }

    /// Replaces one element by the result of `f`; `None` leaves it. Returns the old value.
    ///
    /// # Safety
    /// As for [`Operation::apply`].
    unsafe fn change(self, at: *mut u8, f: impl Fn(u128) -> Option<u128>) -> u128 {
        let size = self.element_bytes();
        macro_rules! native {
            ($atomic:ty, $word:ty) => {{
                // SAFETY: aligned by the match below; the caller vouches for the memory, and all
                // access of this provider to it is by copies or by atomics.
                let cell = unsafe { <$atomic>::from_ptr(at.cast()) };
                let next = |old: $word| f(old.into()).map(|new| new as $word);
                match cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) {
                    Ok(old) | Err(old) => old.into(),
                }
            }};
        }
        match (size, at.addr() % size) {
            (1, 0) => native!(AtomicU8, u8),
            (2, 0) => native!(AtomicU16, u16),
            (4, 0) => native!(AtomicU32, u32),
            (8, 0) => native!(AtomicU64, u64),
            _ => {
                let _lock = LOCK.lock();
                let mut bytes = [0; 16];
                // SAFETY: the caller vouches for `size` bytes, of at most 16.
                unsafe { std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), size) };
                let old = u128::from_le_bytes(bytes);
                if let Some(new) = f(old) {
                    let new = new.to_le_bytes();
                    // SAFETY: likewise.
                    unsafe { std::ptr::copy_nonoverlapping(new.as_ptr(), at, size) };
                }
                old
            }
        }
    }

    /// The new value of an element; `None` if it stays.
    fn compute(self, old: u128, value: u128, comparand: u128) -> Option<u128> {
        match self.op {
            Op::Read => return None,
            Op::Write => return Some(value),
            Op::Mswap => return Some(value & comparand | old & !comparand),
            Op::Bor => return Some(old | value),
            Op::Band => return Some(old & value),
            Op::Bxor => return Some(old ^ value),
            _ => {}
        }
        let sign = 128 - self.bits;
        let signed = |bits: u128| (bits << sign) as i128 >> sign;
        match (self.kind, self.bits) {
            (Type::Signed, _) => {
                let result = whole(self.op, signed(old), signed(value), signed(comparand));
                result.map(|new| (new as u128) << sign >> sign)
            }
            (Type::Unsigned, _) => {
                whole(self.op, old, value, comparand).map(|new| new << sign >> sign)
            }
            (Type::Float, 32) => {
                let part = |bits: u128| f32::from_bits(bits as u32);
                real(self.op, part(old), part(value), part(comparand))
                    .map(|new| new.to_bits().into())
            }
            (Type::Float, _) => {
                let part = |bits: u128| f64::from_bits(bits as u64);
                real(self.op, part(old), part(value), part(comparand))
                    .map(|new| new.to_bits().into())
            }
            (Type::Complex, 64) => {
                let parts =
                    |bits: u128| [f32::from_bits(bits as u32), f32::from_bits((bits >> 32) as u32)];
                let new = complex(self.op, parts(old), parts(value), parts(comparand))?;
                Some(u128::from(new[0].to_bits()) | u128::from(new[1].to_bits()) << 32)
            }
            (Type::Long | Type::LongComplex, _) => None,
            (Type::Complex, _) => {
                let parts =
                    |bits: u128| [f64::from_bits(bits as u64), f64::from_bits((bits >> 64) as u64)];
                let new = complex(self.op, parts(old), parts(value), parts(comparand))?;
                Some(u128::from(new[0].to_bits()) | u128::from(new[1].to_bits()) << 64)
            }
        }
    }
}

/// The bits of the element at `at`; 0 where there is none.
fn bits_of(bytes: &[u8], at: usize, size: usize) -> u128 {
    let mut whole = [0; 16];
    if let Some(element) = bytes.get(at..at + size) {
        whole[..size].copy_from_slice(element);
    }
    u128::from_le_bytes(whole)
}

/// A number, as operations see it.
trait Number: Copy + PartialOrd + Default {
    fn one() -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

macro_rules! whole_number {
    ($($t:ty),*) => {$(
        impl Number for $t {
            fn one() -> $t { 1 }
            fn plus(self, other: $t) -> $t { self.wrapping_add(other) }
            fn minus(self, other: $t) -> $t { self.wrapping_sub(other) }
            fn times(self, other: $t) -> $t { self.wrapping_mul(other) }
        }
    )*};
}
whole_number!(i128, u128);

macro_rules! real_number {
    ($($t:ty),*) => {$(
        impl Number for $t {
            fn one() -> $t { 1.0 }
            fn plus(self, other: $t) -> $t { self + other }
            fn minus(self, other: $t) -> $t { self - other }
            fn times(self, other: $t) -> $t { self * other }
        }
    )*};
}
real_number!(f32, f64);

/// Arithmetic wraps, at the width of the type since the result is cut to it.
fn whole<N: Number>(op: Op, old: N, value: N, comparand: N) -> Option<N> {
    real(op, old, value, comparand)
}

fn real<N: Number>(op: Op, old: N, value: N, comparand: N) -> Option<N> {
    let zero = N::default();
    let logic = |truth: bool| Some(if truth { N::one() } else { zero });
    let (was, is) = (old != zero, value != zero);
    let swap = |allowed: bool| allowed.then_some(value);
    match op {
        Op::Min => (value < old).then_some(value),
        Op::Max => (value > old).then_some(value),
        Op::Sum => Some(old.plus(value)),
        Op::Diff => Some(old.minus(value)),
        Op::Prod => Some(old.times(value)),
        Op::Lor => logic(was || is),
        Op::Land => logic(was && is),
        Op::Lxor => logic(was != is),
        Op::Cswap => swap(comparand == old),
        Op::CswapNe => swap(comparand != old),
        Op::CswapLe => swap(comparand <= old),
        Op::CswapLt => swap(comparand < old),
        Op::CswapGe => swap(comparand >= old),
        Op::CswapGt => swap(comparand > old),
        _ => None,
    }
}

fn complex<N: Number>(op: Op, old: [N; 2], value: [N; 2], comparand: [N; 2]) -> Option<[N; 2]> {
    let zero = [N::default(); 2];
    let logic = |truth: bool| Some([if truth { N::one() } else { zero[0] }, zero[1]]);
    let (was, is) = (old != zero, value != zero);
    match op {
        Op::Sum => Some([old[0].plus(value[0]), old[1].plus(value[1])]),
        Op::Diff => Some([old[0].minus(value[0]), old[1].minus(value[1])]),
        Op::Prod => Some([
            old[0].times(value[0]).minus(old[1].times(value[1])),
            old[0].times(value[1]).plus(old[1].times(value[0])),
        ]),
        Op::Lor => logic(was || is),
        Op::Land => logic(was && is),
        Op::Lxor => logic(was != is),
        Op::Cswap => (comparand == old).then_some(value),
        Op::CswapNe => (comparand != old).then_some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does an operation on one element; returns its old and new values.
    fn one<const N: usize>(
        (op, type_, form): (Op, Datatype, Form),
        old: [u8; N],
        operand: &[u8],
    ) -> ([u8; N], [u8; N]) {
        let operation = Operation::new(op, type_, form).expect("known");
        let (mut cell, mut before) = (old, [0; N]);
        let places = [(cell.as_mut_ptr(), N)];
        // SAFETY: a local array.
        unsafe { operation.apply(&places, operand, &mut before) };
        (before, cell)
    }

    #[test]
    fn whole_numbers_keep_their_width_and_sign() {
        let sum = (Op::Sum, Datatype::Int8, Form::Fetch);
        assert_eq!(one(sum, [127], &[1]), ([127], [0x80]));
        let min = (Op::Min, Datatype::Int16, Form::Update);
        assert_eq!(
            one(min, 5_i16.to_le_bytes(), &(-3_i16).to_le_bytes()).1,
            (-3_i16).to_le_bytes()
        );
        let min = (Op::Min, Datatype::Uint16, Form::Update);
        assert_eq!(one(min, 5_i16.to_le_bytes(), &(-3_i16).to_le_bytes()).1, 5_i16.to_le_bytes());
        let product = (Op::Prod, Datatype::Uint64, Form::Update);
        let wide = u64::MAX.to_le_bytes();
        assert_eq!(one(product, wide, &3_u64.to_le_bytes()).1, (u64::MAX - 2).to_le_bytes());
        let big = (Op::Sum, Datatype::Int128, Form::Update);
        assert_eq!(
            one(big, (-1_i128).to_le_bytes(), &2_i128.to_le_bytes()).1,
            1_i128.to_le_bytes()
        );
    }

    #[test]
    fn comparisons_are_of_the_comparand_with_the_memory() {
        for (op, allowed) in [
            (Op::Cswap, [false, true, false]),
            (Op::CswapNe, [true, false, true]),
            (Op::CswapLe, [true, true, false]),
            (Op::CswapLt, [true, false, false]),
            (Op::CswapGe, [false, true, true]),
            (Op::CswapGt, [false, false, true]),
        ] {
            for (comparand, allowed) in [4_i32, 5, 6].into_iter().zip(allowed) {
                let operand = [9_i32.to_le_bytes(), comparand.to_le_bytes()].concat();
                let swap = (op, Datatype::Int32, Form::Compare);
                let (before, after) = one(swap, 5_i32.to_le_bytes(), &operand);
                let expected: i32 = if allowed { 9 } else { 5 };
                assert_eq!((before, after), (5_i32.to_le_bytes(), expected.to_le_bytes()));
            }
        }
        let mask = (Op::Mswap, Datatype::Uint8, Form::Compare);
        assert_eq!(one(mask, [0b1100], &[0b1010, 0b0110]).1, [0b1010]);
    }

    #[test]
    fn reals_and_complex_numbers() {
        let max = (Op::Max, Datatype::Double, Form::Update);
        assert_eq!(
            one(max, 1.5_f64.to_le_bytes(), &2.5_f64.to_le_bytes()).1,
            2.5_f64.to_le_bytes()
        );
        let pair = |a: f32, b: f32| -> [u8; 8] {
            [a.to_le_bytes(), b.to_le_bytes()].concat().try_into().expect("two floats")
        };
        let product = (Op::Prod, Datatype::FloatComplex, Form::Update);
        assert_eq!(one(product, pair(1.0, 2.0), &pair(3.0, 4.0)).1, pair(-5.0, 10.0));
        let or = (Op::Lor, Datatype::FloatComplex, Form::Update);
        assert_eq!(one(or, pair(0.0, 0.0), &pair(0.0, 2.0)).1, pair(1.0, 0.0));
    }

    #[test]
    fn what_makes_no_sense_is_not_there() {
        assert!(Operation::new(Op::Bor, Datatype::Float, Form::Update).is_none());
        assert!(Operation::new(Op::Min, Datatype::DoubleComplex, Form::Fetch).is_none());
        assert!(Operation::new(Op::Cswap, Datatype::Int8, Form::Fetch).is_none());
        assert!(Operation::new(Op::Sum, Datatype::Int8, Form::Compare).is_none());
        assert!(Operation::new(Op::Read, Datatype::Int8, Form::Update).is_none());
        assert!(Operation::numbered(2, 256, Form::Update).is_none(), "an element of no type");
    }

    #[test]
    fn elements_at_odd_addresses_change_too() {
        let mut bytes = [0_u8; 9];
        let operation = Operation::new(Op::Sum, Datatype::Uint64, Form::Update).expect("known");
        let odd = usize::from(bytes.as_ptr().addr().is_multiple_of(2));
        let places = [(bytes[odd..].as_mut_ptr(), 8)];
        // SAFETY: within the array: it has one byte more.
        unsafe { operation.apply(&places, &7_u64.to_le_bytes(), &mut [0; 8]) };
        assert_eq!(bytes[odd..odd + 8], 7_u64.to_le_bytes());
    }
}
