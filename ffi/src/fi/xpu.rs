//! Device-side objects, newer than 2.6. erd has none; full tables name their types, so they are
//! declared, without a body.
#![allow(missing_docs, reason = "libfabric's names and meanings: rdma/fi_xpu.h")]
#![allow(non_camel_case_types, reason = "libfabric's names")]

macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            #[repr(C)]
            pub struct $name {
                _private: [u8; 0],
            }
        )*
    };
}

opaque! { fid_xpu_ctx fid_xpu_ep fid_xpu_cq fid_xpu_cntr fi_xpu_attr }
