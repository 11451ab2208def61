//! Core's flags are libfabric's flags of the same names.

use erd_core::flags::Flags;
use erd_core::keys::NO_KEY;
use erd_core::peer_index::{ANYONE, NOWHERE};
use erd_ffi::fi::*;

const _: () = {
    let pairs = [
        (Flags::MSG, FI_MSG),
        (Flags::RMA, FI_RMA),
        (Flags::TAGGED, FI_TAGGED),
        (Flags::ATOMIC, FI_ATOMIC),
        (Flags::READ, FI_READ),
        (Flags::WRITE, FI_WRITE),
        (Flags::RECV, FI_RECV),
        (Flags::SEND, FI_SEND),
        (Flags::REMOTE_READ, FI_REMOTE_READ),
        (Flags::REMOTE_WRITE, FI_REMOTE_WRITE),
        (Flags::MULTI_RECV, FI_MULTI_RECV),
        (Flags::REMOTE_CQ_DATA, FI_REMOTE_CQ_DATA),
        (Flags::MORE, FI_MORE),
        (Flags::PEEK, FI_PEEK),
        (Flags::TRIGGER, FI_TRIGGER),
        (Flags::FENCE, FI_FENCE),
        (Flags::COMPLETION, FI_COMPLETION),
        (Flags::INJECT, FI_INJECT),
        (Flags::INJECT_COMPLETE, FI_INJECT_COMPLETE),
        (Flags::TRANSMIT_COMPLETE, FI_TRANSMIT_COMPLETE),
        (Flags::DELIVERY_COMPLETE, FI_DELIVERY_COMPLETE),
        (Flags::MATCH_COMPLETE, FI_MATCH_COMPLETE),
        (Flags::PEER, FI_PEER),
        (Flags::DISCARD, FI_DISCARD),
        (Flags::CLAIM, FI_CLAIM),
    ];
    let mut at = 0;
    while at < pairs.len() {
        assert!(pairs[at].0.bits() == pairs[at].1);
        at += 1;
    }
    assert!(ANYONE == FI_ADDR_UNSPEC && NOWHERE == FI_ADDR_NOTAVAIL && NO_KEY == FI_KEY_NOTAVAIL);
};

#[cfg(test)]
mod tests {
    use super::*;
    use erd_core::atomics::{Datatype, Op};

    #[test]
    fn atomics_have_libfabrics_numbers() {
        let ops = [
            (Op::Min, FI_MIN),
            (Op::Max, FI_MAX),
            (Op::Sum, FI_SUM),
            (Op::Prod, FI_PROD),
            (Op::Lor, FI_LOR),
            (Op::Land, FI_LAND),
            (Op::Bor, FI_BOR),
            (Op::Band, FI_BAND),
            (Op::Lxor, FI_LXOR),
            (Op::Bxor, FI_BXOR),
            (Op::Read, FI_ATOMIC_READ),
            (Op::Write, FI_ATOMIC_WRITE),
            (Op::Cswap, FI_CSWAP),
            (Op::CswapNe, FI_CSWAP_NE),
            (Op::CswapLe, FI_CSWAP_LE),
            (Op::CswapLt, FI_CSWAP_LT),
            (Op::CswapGe, FI_CSWAP_GE),
            (Op::CswapGt, FI_CSWAP_GT),
            (Op::Mswap, FI_MSWAP),
            (Op::Diff, FI_DIFF),
        ];
        assert!(ops.iter().all(|(op, number)| Op::of(*number) == Some(*op)));
        assert_eq!(ops.len(), Op::ALL.len());
        let types = [
            (Datatype::Int8, FI_INT8),
            (Datatype::Uint8, FI_UINT8),
            (Datatype::Int16, FI_INT16),
            (Datatype::Uint16, FI_UINT16),
            (Datatype::Int32, FI_INT32),
            (Datatype::Uint32, FI_UINT32),
            (Datatype::Int64, FI_INT64),
            (Datatype::Uint64, FI_UINT64),
            (Datatype::Float, FI_FLOAT),
            (Datatype::Double, FI_DOUBLE),
            (Datatype::FloatComplex, FI_FLOAT_COMPLEX),
            (Datatype::DoubleComplex, FI_DOUBLE_COMPLEX),
            (Datatype::LongDouble, FI_LONG_DOUBLE),
            (Datatype::LongDoubleComplex, FI_LONG_DOUBLE_COMPLEX),
            (Datatype::Int128, FI_INT128),
            (Datatype::Uint128, FI_UINT128),
        ];
        assert!(types.iter().all(|(one, number)| Datatype::of(*number) == Some(*one)));
        assert_eq!(types.len(), Datatype::ALL.len());
    }
}
