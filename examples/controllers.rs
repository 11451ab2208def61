//! One process with a context for each congestion controller, each at its own transfer.
//!
//! ```sh
//! cargo run --release --example controllers -- 64    # MiB each
//! ```

use erd::verbs::{ContextOptions, Device, Done, Error, OwningQueuePair, QpSizes, controllers};
use std::time::Instant;

const MESSAGE_BYTES: usize = 1 << 20;

/// The next request that is done, if there is one.
fn done(qp: &OwningQueuePair) -> Result<Option<Done>, Error> {
    let done = qp.poll()?;
    // Without a look at this the other side would be waited for in vain.
    let failed = done.iter().find(|done| !done.completion.is_ok());
    assert!(failed.is_none(), "{}", failed.map_or("", |done| done.completion.reason()));
    Ok(done)
}

/// Sends so many messages from one queue pair to another; how long that took, in seconds.
fn transfer(controller: &str, messages: u64) -> Result<f64, Error> {
    let options = ContextOptions::new().controller(controller).paths(4);
    let context = Device::find("127.0.0.1")?.open_with(&options)?;
    let pd = context.alloc_pd();
    let open = || OwningQueuePair::new(&context, &pd, QpSizes::default());
    let (from, to) = (open()?, open()?);
    let peer = pd.create_ah(to.name())?;
    let start = Instant::now();
    for wr_id in 0..messages {
        to.recv(wr_id, vec![0; MESSAGE_BYTES])?;
        from.send(wr_id, &peer, vec![wr_id as u8; MESSAGE_BYTES], None)?;
        let (mut sent, mut received) = (false, false);
        while !(sent && received) {
            sent |= done(&from)?.is_some();
            if let Some(done) = done(&to)? {
                assert!(done.bytes().iter().all(|byte| *byte == wr_id as u8));
                received = true;
            }
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

fn main() -> Result<(), Error> {
    let messages = std::env::args().nth(1).map_or(64, |text| text.parse().expect("MiB"));
    std::thread::scope(|scope| {
        let run = |name: &'static str| scope.spawn(move || (name, transfer(name, messages)));
        let running: Vec<_> = controllers().iter().map(|name| run(name)).collect();
        for thread in running {
            let (name, seconds) = thread.join().expect("a transfer ends");
            let rate = messages as f64 * MESSAGE_BYTES as f64 / 1e9 / seconds?;
            println!("{name:8} {rate:6.2} GB/s");
        }
        Ok(())
    })
}
