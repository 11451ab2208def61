//! The operations of `fi_atomic(3)` on memory of this host.
//!
//! Elements of up to 8 bytes at an address that is a multiple of their size change by the
//! processor's compare-and-swap, so that other processes and the application's own atomic
//! instructions see whole values. All others change under one lock of this process.

mod long;

use erd_ffi::fi::*;
use erd_rd::wire::remote::ATOMIC_MAX_BYTES;
use erd_rd::{Atomic, Form};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Held while an element changes that the processor cannot change in one instruction.
static LOCK: Mutex<()> = Mutex::new(());

/// What an element is.
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
    op: fi_op,
    form: Form,
    kind: Type,
    bits: u32,
}

/// Kind of a datatype and the bits of its elements.
fn datatype(datatype: fi_datatype) -> Option<(Type, u32)> {
    Some(match datatype {
        FI_INT8 => (Type::Signed, 8),
        FI_UINT8 => (Type::Unsigned, 8),
        FI_INT16 => (Type::Signed, 16),
        FI_UINT16 => (Type::Unsigned, 16),
        FI_INT32 => (Type::Signed, 32),
        FI_UINT32 => (Type::Unsigned, 32),
        FI_INT64 => (Type::Signed, 64),
        FI_UINT64 => (Type::Unsigned, 64),
        FI_INT128 => (Type::Signed, 128),
        FI_UINT128 => (Type::Unsigned, 128),
        FI_FLOAT => (Type::Float, 32),
        FI_DOUBLE => (Type::Float, 64),
        FI_FLOAT_COMPLEX => (Type::Complex, 64),
        FI_DOUBLE_COMPLEX => (Type::Complex, 128),
        FI_LONG_DOUBLE => (Type::Long, 128),
        FI_LONG_DOUBLE_COMPLEX => (Type::LongComplex, 256),
        _ => return None,
    })
}

impl Operation {
    /// What a request asks for; `None` if there is no such operation.
    #[must_use]
    pub fn find(atomic: Atomic) -> Option<Operation> {
        Operation::new(atomic.op.into(), atomic.datatype.into(), atomic.form)
    }

    /// The operation, as `fi_query_atomic(3)` asks for it; `None` if there is none.
    #[must_use]
    pub fn new(op: fi_op, type_: fi_datatype, form: Form) -> Option<Operation> {
        let (kind, bits) = datatype(type_)?;
        let whole = matches!(kind, Type::Signed | Type::Unsigned);
        let ordered = !matches!(kind, Type::Complex | Type::LongComplex);
        let known = match op {
            FI_MIN | FI_MAX => ordered && form != Form::Compare,
            FI_SUM | FI_DIFF | FI_PROD | FI_LOR | FI_LAND | FI_LXOR | FI_ATOMIC_WRITE => {
                form != Form::Compare
            }
            FI_BOR | FI_BAND | FI_BXOR => whole && form != Form::Compare,
            FI_ATOMIC_READ => form == Form::Fetch,
            FI_CSWAP | FI_CSWAP_NE => form == Form::Compare,
            FI_CSWAP_LE | FI_CSWAP_LT | FI_CSWAP_GE | FI_CSWAP_GT => {
                ordered && form == Form::Compare
            }
            FI_MSWAP => whole && form == Form::Compare,
            _ => false,
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

    /// It changes nothing.
    #[must_use]
    pub fn reads_only(self) -> bool {
        self.op == FI_ATOMIC_READ
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

    /// Changes the elements of all `places` and fills `before` with what they were. The operand's
    /// second half is the comparand, where there is one.
    ///
    /// # Safety
    /// Each place is readable for its length and, unless the operation only reads, writable.
    pub unsafe fn apply(self, places: &[(*mut u8, usize)], operand: &[u8], before: &mut [u8]) {
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

    /// Replaces one element by what `f` makes of it; `None` leaves it. Answers what it was.
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

    /// What an element becomes; `None` if it stays.
    fn compute(self, old: u128, value: u128, comparand: u128) -> Option<u128> {
        match self.op {
            FI_ATOMIC_READ => return None,
            FI_ATOMIC_WRITE => return Some(value),
            FI_MSWAP => return Some(value & comparand | old & !comparand),
            FI_BOR => return Some(old | value),
            FI_BAND => return Some(old & value),
            FI_BXOR => return Some(old ^ value),
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
fn whole<N: Number>(op: fi_op, old: N, value: N, comparand: N) -> Option<N> {
    real(op, old, value, comparand)
}

fn real<N: Number>(op: fi_op, old: N, value: N, comparand: N) -> Option<N> {
    let zero = N::default();
    let logic = |truth: bool| Some(if truth { N::one() } else { zero });
    let (was, is) = (old != zero, value != zero);
    let swap = |allowed: bool| allowed.then_some(value);
    match op {
        FI_MIN => (value < old).then_some(value),
        FI_MAX => (value > old).then_some(value),
        FI_SUM => Some(old.plus(value)),
        FI_DIFF => Some(old.minus(value)),
        FI_PROD => Some(old.times(value)),
        FI_LOR => logic(was || is),
        FI_LAND => logic(was && is),
        FI_LXOR => logic(was != is),
        FI_CSWAP => swap(comparand == old),
        FI_CSWAP_NE => swap(comparand != old),
        FI_CSWAP_LE => swap(comparand <= old),
        FI_CSWAP_LT => swap(comparand < old),
        FI_CSWAP_GE => swap(comparand >= old),
        FI_CSWAP_GT => swap(comparand > old),
        _ => None,
    }
}

fn complex<N: Number>(op: fi_op, old: [N; 2], value: [N; 2], comparand: [N; 2]) -> Option<[N; 2]> {
    let zero = [N::default(); 2];
    let logic = |truth: bool| Some([if truth { N::one() } else { zero[0] }, zero[1]]);
    let (was, is) = (old != zero, value != zero);
    match op {
        FI_SUM => Some([old[0].plus(value[0]), old[1].plus(value[1])]),
        FI_DIFF => Some([old[0].minus(value[0]), old[1].minus(value[1])]),
        FI_PROD => Some([
            old[0].times(value[0]).minus(old[1].times(value[1])),
            old[0].times(value[1]).plus(old[1].times(value[0])),
        ]),
        FI_LOR => logic(was || is),
        FI_LAND => logic(was && is),
        FI_LXOR => logic(was != is),
        FI_CSWAP => (comparand == old).then_some(value),
        FI_CSWAP_NE => (comparand != old).then_some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does an operation on one element; answers what it was and what it is.
    fn one<const N: usize>(
        (op, type_, form): (fi_op, fi_datatype, Form),
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
        let sum = (FI_SUM, FI_INT8, Form::Fetch);
        assert_eq!(one(sum, [127], &[1]), ([127], [0x80]));
        let min = (FI_MIN, FI_INT16, Form::Update);
        assert_eq!(
            one(min, 5_i16.to_le_bytes(), &(-3_i16).to_le_bytes()).1,
            (-3_i16).to_le_bytes()
        );
        let min = (FI_MIN, FI_UINT16, Form::Update);
        assert_eq!(one(min, 5_i16.to_le_bytes(), &(-3_i16).to_le_bytes()).1, 5_i16.to_le_bytes());
        let product = (FI_PROD, FI_UINT64, Form::Update);
        let wide = u64::MAX.to_le_bytes();
        assert_eq!(one(product, wide, &3_u64.to_le_bytes()).1, (u64::MAX - 2).to_le_bytes());
        let big = (FI_SUM, FI_INT128, Form::Update);
        assert_eq!(
            one(big, (-1_i128).to_le_bytes(), &2_i128.to_le_bytes()).1,
            1_i128.to_le_bytes()
        );
    }

    #[test]
    fn comparisons_are_of_the_comparand_with_the_memory() {
        for (op, allowed) in [
            (FI_CSWAP, [false, true, false]),
            (FI_CSWAP_NE, [true, false, true]),
            (FI_CSWAP_LE, [true, true, false]),
            (FI_CSWAP_LT, [true, false, false]),
            (FI_CSWAP_GE, [false, true, true]),
            (FI_CSWAP_GT, [false, false, true]),
        ] {
            for (comparand, allowed) in [4_i32, 5, 6].into_iter().zip(allowed) {
                let operand = [9_i32.to_le_bytes(), comparand.to_le_bytes()].concat();
                let swap = (op, FI_INT32, Form::Compare);
                let (before, after) = one(swap, 5_i32.to_le_bytes(), &operand);
                let expected: i32 = if allowed { 9 } else { 5 };
                assert_eq!((before, after), (5_i32.to_le_bytes(), expected.to_le_bytes()));
            }
        }
        let mask = (FI_MSWAP, FI_UINT8, Form::Compare);
        assert_eq!(one(mask, [0b1100], &[0b1010, 0b0110]).1, [0b1010]);
    }

    #[test]
    fn reals_and_complex_numbers() {
        let max = (FI_MAX, FI_DOUBLE, Form::Update);
        assert_eq!(
            one(max, 1.5_f64.to_le_bytes(), &2.5_f64.to_le_bytes()).1,
            2.5_f64.to_le_bytes()
        );
        let pair = |a: f32, b: f32| -> [u8; 8] {
            [a.to_le_bytes(), b.to_le_bytes()].concat().try_into().expect("two floats")
        };
        let product = (FI_PROD, FI_FLOAT_COMPLEX, Form::Update);
        assert_eq!(one(product, pair(1.0, 2.0), &pair(3.0, 4.0)).1, pair(-5.0, 10.0));
        let or = (FI_LOR, FI_FLOAT_COMPLEX, Form::Update);
        assert_eq!(one(or, pair(0.0, 0.0), &pair(0.0, 2.0)).1, pair(1.0, 0.0));
    }

    #[test]
    fn what_makes_no_sense_is_not_there() {
        assert!(Operation::new(FI_BOR, FI_FLOAT, Form::Update).is_none());
        assert!(Operation::new(FI_MIN, FI_DOUBLE_COMPLEX, Form::Fetch).is_none());
        assert!(Operation::new(FI_CSWAP, FI_INT8, Form::Fetch).is_none());
        assert!(Operation::new(FI_SUM, FI_INT8, Form::Compare).is_none());
        assert!(Operation::new(FI_ATOMIC_READ, FI_INT8, Form::Update).is_none());
        assert!(Operation::new(FI_SUM, FI_VOID, Form::Update).is_none());
    }

    #[test]
    fn elements_at_odd_addresses_change_too() {
        let mut bytes = [0_u8; 9];
        let operation = Operation::new(FI_SUM, FI_UINT64, Form::Update).expect("known");
        let odd = usize::from(bytes.as_ptr().addr().is_multiple_of(2));
        let places = [(bytes[odd..].as_mut_ptr(), 8)];
        // SAFETY: within the array: it has one byte more.
        unsafe { operation.apply(&places, &7_u64.to_le_bytes(), &mut [0; 8]) };
        assert_eq!(bytes[odd..odd + 8], 7_u64.to_le_bytes());
    }
}
