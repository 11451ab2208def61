//! The numbers of operations and datatypes in requests (docs/protocol.md §9): those of `enum fi_op` and `enum
//! fi_datatype`.

macro_rules! codes {
    ($(#[$doc:meta])* enum $name:ident { $($(#[$text:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[$text])* $variant = $number,)* }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The one with this number.
            #[must_use]
            pub fn of(number: u32) -> Option<$name> {
                match number {
                    $($number => Some($name::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// The operation of an atomic: the new value of an element.
    enum Op {
        /// The lesser of element and operand.
        Min = 0,
        /// The greater of element and operand.
        Max = 1,
        /// Their sum.
        Sum = 2,
        /// Their product.
        Prod = 3,
        /// 1 if one of them is not 0.
        Lor = 4,
        /// 1 if neither is 0.
        Land = 5,
        /// The bits of either.
        Bor = 6,
        /// The bits of both.
        Band = 7,
        /// 1 if exactly one of them is not 0.
        Lxor = 8,
        /// The bits of exactly one.
        Bxor = 9,
        /// The element as it is.
        Read = 10,
        /// The operand.
        Write = 11,
        /// The operand if the comparand equals the element.
        Cswap = 12,
        /// The operand if the comparand does not equal the element.
        CswapNe = 13,
        /// The operand if the comparand is at most the element.
        CswapLe = 14,
        /// The operand if the comparand is less than the element.
        CswapLt = 15,
        /// The operand if the comparand is at least the element.
        CswapGe = 16,
        /// The operand if the comparand is greater than the element.
        CswapGt = 17,
        /// The operand's bits where the comparand has ones.
        Mswap = 18,
        /// The element less the operand.
        Diff = 19,
    }
}

codes! {
    /// The type of an element.
    enum Datatype {
        /// 8 bits, signed.
        Int8 = 0,
        /// 8 bits.
        Uint8 = 1,
        /// 16 bits, signed.
        Int16 = 2,
        /// 16 bits.
        Uint16 = 3,
        /// 32 bits, signed.
        Int32 = 4,
        /// 32 bits.
        Uint32 = 5,
        /// 64 bits, signed.
        Int64 = 6,
        /// 64 bits.
        Uint64 = 7,
        /// A number of 32 bits.
        Float = 8,
        /// A number of 64 bits.
        Double = 9,
        /// Two numbers of 32 bits.
        FloatComplex = 10,
        /// Two numbers of 64 bits.
        DoubleComplex = 11,
        /// A number of 80 bits in 16 bytes.
        LongDouble = 12,
        /// Two of these.
        LongDoubleComplex = 13,
        /// 128 bits, signed.
        Int128 = 14,
        /// 128 bits.
        Uint128 = 15,
    }
}
