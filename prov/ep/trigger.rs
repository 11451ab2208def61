//! Calls with `FI_TRIGGER`: operations that are posted when a counter reaches a threshold (`fi_trigger(3)`).

use super::fid::Caller;
use crate::{errno, object};
use erd_core::counter::Counter;
use erd_core::endpoint::{Later, Post};
use erd_core::trigger::Action;
use erd_ffi::fi::{FI_EINVAL, FI_ENOSYS, FI_TRIGGER_THRESHOLD, fi_triggered_context};
use std::ffi::c_int;

impl Caller<'_> {
    /// A call with `FI_TRIGGER`, whose context has the counter and the threshold.
    #[cold]
    pub(super) fn trigger(&self, post: Post) -> isize {
        match self.wait_for_trigger(post) {
            Ok(()) => 0,
            Err(errno) => -(errno as isize),
        }
    }

    fn wait_for_trigger(&self, post: Post) -> Result<(), c_int> {
        let context = post.context().cast::<fi_triggered_context>();
        if context.is_null() {
            tracing::info!("FI_TRIGGER: the context must be a struct fi_triggered_context");
            return Err(FI_EINVAL);
        }
        // SAFETY: under FI_TRIGGER the context is such a structure (`fi_trigger(3)`), of which the
        // kind says what the union holds; its counter is open.
        let (cntr, threshold) = unsafe {
            if (*context).event_type != FI_TRIGGER_THRESHOLD {
                tracing::info!("FI_TRIGGER: event_type may be FI_TRIGGER_THRESHOLD");
                return Err(FI_ENOSYS);
            }
            let asked = (*context).trigger.threshold;
            (object::from_fid::<Counter>(asked.cntr.cast()), asked.threshold)
        };
        let Some(cntr) = cntr else { return Err(FI_EINVAL) };
        let later = Later::new(self.ep, post, None).map_err(errno::of)?;
        let action = Action::Post(Box::new(later));
        cntr.defer(&self.domain, threshold as u64, action, 0).map_err(errno::of)
    }
}
