//! Versions, flags and enumerators: `fabric(7)`, `fi_getinfo(3)`, `fi_endpoint(3)`, `fi_domain(3)`,
//! `fi_av(3)`, `fi_mr(3)`, `fi_cq(3)`, `fi_cntr(3)`, `fi_eq(3)`, `fi_atomic(3)`, `fi_collective(3)`.
#![allow(missing_docs, reason = "libfabric's names and meanings: the man pages above")]
#![allow(non_camel_case_types, reason = "libfabric's names")]

use super::layout::c_consts;
use core::ffi::{c_int, c_uint};

/// The newest API that these declarations follow; a provider states it as its `fi_version`.
pub const NEWEST_API: u32 = fi_version(2, 6);

/// `FI_VERSION(major, minor)`: 16 bits each.
#[must_use]
pub const fn fi_version(major: u16, minor: u16) -> u32 {
    ((major as u32) << 16) | minor as u32
}

pub type fi_addr_t = u64;
pub type fi_av_type = c_uint;
pub type fi_progress = c_uint;
pub type fi_threading = c_uint;
pub type fi_resource_mgmt = c_uint;
pub type fi_ep_type = c_uint;
pub type fi_bus_type = c_uint;
pub type fi_link_state = c_uint;
pub type fi_hmem_iface = c_uint;
pub type fi_datatype = c_uint;
pub type fi_op = c_uint;
pub type fi_collective_op = c_uint;
pub type fi_wait_obj = c_uint;
pub type fi_cq_format = c_uint;
pub type fi_cq_wait_cond = c_uint;
pub type fi_cntr_events = c_uint;
pub type fi_trigger_event = c_uint;
pub type fi_op_type = c_uint;

c_consts! {
    // Sizes that applications rely on.
    usize: FI_NAME_MAX = 64;

    // Capabilities and operation flags share one 64-bit space.
    u64:
        FI_MSG = 1 << 1,
        FI_RMA = 1 << 2,
        FI_TAGGED = 1 << 3,
        FI_ATOMIC = 1 << 4,
        FI_ATOMICS = FI_ATOMIC,
        FI_MULTICAST = 1 << 5,
        FI_COLLECTIVE = 1 << 6,
        FI_READ = 1 << 8,
        FI_WRITE = 1 << 9,
        FI_RECV = 1 << 10,
        FI_SEND = 1 << 11,
        FI_TRANSMIT = FI_SEND,
        FI_REMOTE_READ = 1 << 12,
        FI_REMOTE_WRITE = 1 << 13,
        FI_MULTI_RECV = 1 << 16,
        FI_REMOTE_CQ_DATA = 1 << 17,
        FI_MORE = 1 << 18,
        FI_PEEK = 1 << 19,
        FI_TRIGGER = 1 << 20,
        FI_FENCE = 1 << 21,
        FI_COMPLETION = 1 << 24,
        FI_EVENT = FI_COMPLETION,
        FI_INJECT = 1 << 25,
        FI_INJECT_COMPLETE = 1 << 26,
        FI_TRANSMIT_COMPLETE = 1 << 27,
        FI_DELIVERY_COMPLETE = 1 << 28,
        FI_AFFINITY = 1 << 29,
        FI_COMMIT_COMPLETE = 1 << 30,
        FI_MATCH_COMPLETE = 1 << 31,
        FI_RESCAN = 1 << 35,
        FI_PEER_TRANSFER = 1 << 36,
        FI_AV_USER_ID = 1 << 41,
        FI_FIREWALL_ADDR = 1 << 42,
        FI_PEER = 1 << 43,
        FI_XPU = 1 << 44,
        FI_TAGGED_DIRECTED_RECV = 1 << 45,
        FI_TAGGED_MULTI_RECV = 1 << 46,
        FI_HMEM = 1 << 47,
        FI_EXACT_DIRECTED_RECV = 1 << 48,
        FI_RMA_PMEM = 1 << 49,
        FI_SOURCE_ERR = 1 << 50,
        FI_LOCAL_COMM = 1 << 51,
        FI_REMOTE_COMM = 1 << 52,
        FI_SHARED_AV = 1 << 53,
        FI_PROV_ATTR_ONLY = 1 << 54,
        FI_NUMERICHOST = 1 << 55,
        FI_RMA_EVENT = 1 << 56,
        FI_SOURCE = 1 << 57,
        FI_NAMED_RX_CTX = 1 << 58,
        FI_DIRECTED_RECV = 1 << 59;

    // Flags of single calls: receives and CQs, binding, atomics, AVs, AV sets, registration.
    u64:
        FI_CLAIM = 1 << 59,
        FI_DISCARD = 1 << 58,
        FI_AUTH_KEY = 1 << 57,
        FI_SELECTIVE_COMPLETION = 1 << 59,
        FI_FETCH_ATOMIC = 1 << 58,
        FI_COMPARE_ATOMIC = 1 << 59,
        FI_SYMMETRIC = 1 << 59,
        FI_SYNC_ERR = 1 << 58,
        FI_UNIVERSE = 1 << 57,
        FI_BARRIER_SET = 1 << 40,
        FI_BROADCAST_SET = 1 << 41,
        FI_ALLTOALL_SET = 1 << 42,
        FI_ALLREDUCE_SET = 1 << 43,
        FI_ALLGATHER_SET = 1 << 44,
        FI_REDUCE_SCATTER_SET = 1 << 45,
        FI_REDUCE_SET = 1 << 46,
        FI_SCATTER_SET = 1 << 47,
        FI_GATHER_SET = 1 << 48,
        FI_MR_DMABUF = 1 << 40,
        FI_MR_SINGLE_USE = 1 << 41,
        FI_HMEM_HOST_ALLOC = 1 << 45,
        FI_HMEM_DEVICE_ONLY = 1 << 46,
        FI_REG_MR = 1 << 59;

    // Mode bits.
    u64:
        FI_CONTEXT = 1 << 59,
        FI_MSG_PREFIX = 1 << 58,
        FI_ASYNC_IOV = 1 << 57,
        FI_RX_CQ_DATA = 1 << 56,
        FI_LOCAL_MR = 1 << 55,
        FI_CONTEXT2 = 1 << 52;

    // Ordering; FI_ORDER_STRICT and FI_ORDER_DATA are deprecated but still asked for.
    u64:
        FI_ORDER_NONE = 0,
        FI_ORDER_RAR = 1 << 0,
        FI_ORDER_RAW = 1 << 1,
        FI_ORDER_RAS = 1 << 2,
        FI_ORDER_WAR = 1 << 3,
        FI_ORDER_WAW = 1 << 4,
        FI_ORDER_WAS = 1 << 5,
        FI_ORDER_SAR = 1 << 6,
        FI_ORDER_SAW = 1 << 7,
        FI_ORDER_SAS = 1 << 8,
        FI_ORDER_STRICT = 0x1ff,
        FI_ORDER_DATA = 1 << 16,
        FI_ORDER_RMA_RAR = 1 << 32,
        FI_ORDER_RMA_RAW = 1 << 33,
        FI_ORDER_RMA_WAR = 1 << 34,
        FI_ORDER_RMA_WAW = 1 << 35,
        FI_ORDER_ATOMIC_RAR = 1 << 36,
        FI_ORDER_ATOMIC_RAW = 1 << 37,
        FI_ORDER_ATOMIC_WAR = 1 << 38,
        FI_ORDER_ATOMIC_WAW = 1 << 39;

    // Memory registration modes (`fi_domain_attr.mr_mode`).
    c_int:
        FI_MR_UNSPEC = 0,
        FI_MR_BASIC = 1 << 0,
        FI_MR_SCALABLE = 1 << 1,
        FI_MR_LOCAL = 1 << 2,
        FI_MR_RAW = 1 << 3,
        FI_MR_VIRT_ADDR = 1 << 4,
        FI_MR_ALLOCATED = 1 << 5,
        FI_MR_PROV_KEY = 1 << 6,
        FI_MR_MMU_NOTIFY = 1 << 7,
        FI_MR_RMA_EVENT = 1 << 8,
        FI_MR_ENDPOINT = 1 << 9,
        FI_MR_HMEM = 1 << 10,
        FI_MR_COLLECTIVE = 1 << 11,
        FI_MR_XPU_DESC = 1 << 12;

    // Address formats (`fi_info.addr_format`).
    u32:
        FI_FORMAT_UNSPEC = 0,
        FI_SOCKADDR = 1,
        FI_SOCKADDR_IN = 2,
        FI_SOCKADDR_IN6 = 3,
        FI_SOCKADDR_IB = 4,
        FI_ADDR_STR = 9,
        FI_ADDR_IB_UD = 11,
        FI_SOCKADDR_IP = 17;

    fi_addr_t:
        FI_ADDR_UNSPEC = u64::MAX,
        FI_ADDR_NOTAVAIL = u64::MAX;
    u64: FI_KEY_NOTAVAIL = u64::MAX;
    usize:
        FI_SHARED_CONTEXT = usize::MAX,
        FI_AV_AUTH_KEY = usize::MAX;

    fi_av_type: FI_AV_UNSPEC = 0, FI_AV_MAP = 1, FI_AV_TABLE = 2;
    fi_progress:
        FI_PROGRESS_UNSPEC = 0,
        FI_PROGRESS_AUTO = 1,
        FI_PROGRESS_MANUAL = 2,
        FI_PROGRESS_CONTROL_UNIFIED = 3;
    fi_threading:
        FI_THREAD_UNSPEC = 0,
        FI_THREAD_SAFE = 1,
        FI_THREAD_FID = 2,
        FI_THREAD_DOMAIN = 3,
        FI_THREAD_COMPLETION = 4,
        FI_THREAD_ENDPOINT = 5;
    fi_resource_mgmt: FI_RM_UNSPEC = 0, FI_RM_DISABLED = 1, FI_RM_ENABLED = 2;
    fi_ep_type: FI_EP_UNSPEC = 0, FI_EP_MSG = 1, FI_EP_DGRAM = 2, FI_EP_RDM = 3;

    // Endpoint protocols that erd meets; a provider's own has the top bit set.
    u32: FI_PROTO_UNSPEC = 0, FI_PROTO_IB_UD = 3, FI_PROTO_UDP = 5, FI_PROTO_RXD = 12;

    // Traffic classes and tag formats.
    u32:
        FI_TC_UNSPEC = 0,
        FI_TC_DSCP = 0x100,
        FI_TC_LABEL = 0x200,
        FI_TC_BEST_EFFORT = 0x200,
        FI_TC_LOW_LATENCY = 0x201,
        FI_TC_DEDICATED_ACCESS = 0x202,
        FI_TC_BULK_DATA = 0x203,
        FI_TC_SCAVENGER = 0x204,
        FI_TC_NETWORK_CTRL = 0x205;
    u64:
        FI_TAG_BITS = 0,
        FI_TAG_MPI = 1,
        FI_TAG_CCL = 2,
        FI_TAG_MAX_FORMAT = 1 << 16,
        FI_MPI_IGNORE_TAG = u32::MAX as u64,
        FI_MPI_IGNORE_PAYLOAD = (u8::MAX as u64) << 32;

    fi_bus_type: FI_BUS_UNSPEC = 0, FI_BUS_UNKNOWN = 0, FI_BUS_PCI = 1;
    fi_link_state: FI_LINK_UNKNOWN = 0, FI_LINK_DOWN = 1, FI_LINK_UP = 2;

    // Object classes (`fid.fclass`).
    usize:
        FI_CLASS_UNSPEC = 0,
        FI_CLASS_FABRIC = 1,
        FI_CLASS_DOMAIN = 2,
        FI_CLASS_EP = 3,
        FI_CLASS_SEP = 4,
        FI_CLASS_RX_CTX = 5,
        FI_CLASS_SRX_CTX = 6,
        FI_CLASS_TX_CTX = 7,
        FI_CLASS_STX_CTX = 8,
        FI_CLASS_PEP = 9,
        FI_CLASS_INTERFACE = 10,
        FI_CLASS_AV = 11,
        FI_CLASS_MR = 12,
        FI_CLASS_EQ = 13,
        FI_CLASS_CQ = 14,
        FI_CLASS_CNTR = 15,
        FI_CLASS_WAIT = 16,
        FI_CLASS_POLL = 17,
        FI_CLASS_CONNREQ = 18,
        FI_CLASS_MC = 19,
        FI_CLASS_NIC = 20,
        FI_CLASS_AV_SET = 21,
        FI_CLASS_MR_CACHE = 22,
        FI_CLASS_MEM_MONITOR = 23,
        FI_CLASS_PEER_CQ = 24,
        FI_CLASS_PEER_SRX = 25,
        FI_CLASS_LOG = 26,
        FI_CLASS_PEER_AV = 27,
        FI_CLASS_PEER_AV_SET = 28,
        FI_CLASS_PEER_CNTR = 29,
        FI_CLASS_PROFILE = 30,
        FI_CLASS_XPU_CTX = 31;

    // Commands of `fi_ops.control`.
    c_int:
        FI_GETFIDFLAG = 0,
        FI_SETFIDFLAG = 1,
        FI_GETOPSFLAG = 2,
        FI_SETOPSFLAG = 3,
        FI_ALIAS = 4,
        FI_GETWAIT = 5,
        FI_ENABLE = 6,
        FI_BACKLOG = 7,
        FI_GET_RAW_MR = 8,
        FI_MAP_RAW_MR = 9,
        FI_UNMAP_KEY = 10,
        FI_QUEUE_WORK = 11,
        FI_CANCEL_WORK = 12,
        FI_FLUSH_WORK = 13,
        FI_REFRESH = 14,
        FI_DUP = 15,
        FI_GETWAITOBJ = 16,
        FI_GET_VAL = 17,
        FI_SET_VAL = 18,
        FI_EXPORT_FID = 19,
        FI_GET_FD = 20,
        FI_GET_MR_XPU_DESC = 21;

    // Endpoint options (`fi_setopt`, `fi_getopt`); negative ones are a provider's own.
    c_int:
        FI_OPT_ENDPOINT = 0,
        FI_OPT_MIN_MULTI_RECV = 0,
        FI_OPT_CM_DATA_SIZE = 1,
        FI_OPT_BUFFERED_MIN = 2,
        FI_OPT_BUFFERED_LIMIT = 3,
        FI_OPT_SEND_BUF_SIZE = 4,
        FI_OPT_RECV_BUF_SIZE = 5,
        FI_OPT_TX_SIZE = 6,
        FI_OPT_RX_SIZE = 7,
        FI_OPT_FI_HMEM_P2P = 8,
        FI_OPT_XPU_TRIGGER = 9,
        FI_OPT_CUDA_API_PERMITTED = 10,
        FI_OPT_SHARED_MEMORY_PERMITTED = 11,
        FI_OPT_MAX_MSG_SIZE = 12,
        FI_OPT_MAX_TAGGED_SIZE = 13,
        FI_OPT_MAX_RMA_SIZE = 14,
        FI_OPT_MAX_ATOMIC_SIZE = 15,
        FI_OPT_INJECT_MSG_SIZE = 16,
        FI_OPT_INJECT_TAGGED_SIZE = 17,
        FI_OPT_INJECT_RMA_SIZE = 18,
        FI_OPT_INJECT_ATOMIC_SIZE = 19,
        FI_OPT_FIREWALL_ADDR = 20,
        FI_HMEM_P2P_ENABLED = 0,
        FI_HMEM_P2P_REQUIRED = 1,
        FI_HMEM_P2P_PREFERRED = 2,
        FI_HMEM_P2P_DISABLED = 3;

    fi_hmem_iface:
        FI_HMEM_SYSTEM = 0,
        FI_HMEM_CUDA = 1,
        FI_HMEM_ROCR = 2,
        FI_HMEM_ZE = 3,
        FI_HMEM_NEURON = 4,
        FI_HMEM_SYNAPSEAI = 5;

    fi_wait_obj:
        FI_WAIT_NONE = 0,
        FI_WAIT_UNSPEC = 1,
        FI_WAIT_SET = 2,
        FI_WAIT_FD = 3,
        FI_WAIT_MUTEX_COND = 4,
        FI_WAIT_YIELD = 5,
        FI_WAIT_POLLFD = 6;
    fi_cq_format:
        FI_CQ_FORMAT_UNSPEC = 0,
        FI_CQ_FORMAT_CONTEXT = 1,
        FI_CQ_FORMAT_MSG = 2,
        FI_CQ_FORMAT_DATA = 3,
        FI_CQ_FORMAT_TAGGED = 4;
    fi_cq_wait_cond: FI_CQ_COND_NONE = 0, FI_CQ_COND_THRESHOLD = 1;
    fi_cntr_events: FI_CNTR_EVENTS_COMP = 0, FI_CNTR_EVENTS_BYTES = 1;

    // Events of an EQ.
    u32:
        FI_NOTIFY = 0,
        FI_CONNREQ = 1,
        FI_CONNECTED = 2,
        FI_SHUTDOWN = 3,
        FI_MR_COMPLETE = 4,
        FI_AV_COMPLETE = 5,
        FI_JOIN_COMPLETE = 6;

    fi_datatype:
        FI_INT8 = 0,
        FI_UINT8 = 1,
        FI_INT16 = 2,
        FI_UINT16 = 3,
        FI_INT32 = 4,
        FI_UINT32 = 5,
        FI_INT64 = 6,
        FI_UINT64 = 7,
        FI_FLOAT = 8,
        FI_DOUBLE = 9,
        FI_FLOAT_COMPLEX = 10,
        FI_DOUBLE_COMPLEX = 11,
        FI_LONG_DOUBLE = 12,
        FI_LONG_DOUBLE_COMPLEX = 13,
        FI_INT128 = 14,
        FI_UINT128 = 15,
        FI_FLOAT16 = 16,
        FI_BFLOAT16 = 17,
        FI_FLOAT8_E4M3 = 18,
        FI_FLOAT8_E5M2 = 19,
        FI_VOID = 256;
    fi_op:
        FI_MIN = 0,
        FI_MAX = 1,
        FI_SUM = 2,
        FI_PROD = 3,
        FI_LOR = 4,
        FI_LAND = 5,
        FI_BOR = 6,
        FI_BAND = 7,
        FI_LXOR = 8,
        FI_BXOR = 9,
        FI_ATOMIC_READ = 10,
        FI_ATOMIC_WRITE = 11,
        FI_CSWAP = 12,
        FI_CSWAP_NE = 13,
        FI_CSWAP_LE = 14,
        FI_CSWAP_LT = 15,
        FI_CSWAP_GE = 16,
        FI_CSWAP_GT = 17,
        FI_MSWAP = 18,
        FI_DIFF = 19,
        FI_NOOP = 256;
    fi_collective_op:
        FI_BARRIER = 0,
        FI_BROADCAST = 1,
        FI_ALLTOALL = 2,
        FI_ALLREDUCE = 3,
        FI_ALLGATHER = 4,
        FI_REDUCE_SCATTER = 5,
        FI_REDUCE = 6,
        FI_SCATTER = 7,
        FI_GATHER = 8;

    fi_trigger_event: FI_TRIGGER_THRESHOLD = 0, FI_TRIGGER_XPU = 1;
    fi_op_type:
        FI_OP_RECV = 0,
        FI_OP_SEND = 1,
        FI_OP_TRECV = 2,
        FI_OP_TSEND = 3,
        FI_OP_READ = 4,
        FI_OP_WRITE = 5,
        FI_OP_ATOMIC = 6,
        FI_OP_FETCH_ATOMIC = 7,
        FI_OP_COMPARE_ATOMIC = 8,
        FI_OP_CNTR_SET = 9,
        FI_OP_CNTR_ADD = 10;
}
