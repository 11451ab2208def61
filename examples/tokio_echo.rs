//! Queue pairs under tokio, by the file descriptor of their completion queue.
//!
//! ```sh
//! cargo run --release --example tokio_echo
//! ```

use erd::verbs::{
    Context, Device, Done, Error, Notify, OwningQueuePair, ProtectionDomain, QpSizes,
};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

const ROUNDS: u64 = 100;
/// A side that does nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A queue pair whose completions can be awaited.
struct AsyncQp {
    qp: OwningQueuePair,
    fd: AsyncFd<OwnedFd>,
}

impl AsyncQp {
    fn new(context: &Context, pd: &ProtectionDomain) -> io::Result<AsyncQp> {
        let qp = OwningQueuePair::new(context, pd, QpSizes::default()).map_err(io::Error::other)?;
        let fd = qp.fd().map_err(io::Error::other)?.try_clone_to_owned()?;
        Ok(AsyncQp { qp, fd: AsyncFd::new(fd)? })
    }

    /// The next request that is done.
    async fn done(&self) -> io::Result<Done> {
        loop {
            if let Some(done) = self.qp.poll().map_err(io::Error::other)? {
                return Ok(done);
            }
            if self.qp.req_notify().map_err(io::Error::other)? == Notify::Armed {
                // Forgotten at once: what comes from here on makes it ready again.
                timeout(PATIENCE, self.fd.readable()).await??.clear_ready();
            }
        }
    }
}

async fn echo(side: AsyncQp, pd: ProtectionDomain) -> Result<(), Error> {
    let failed = |source| Error::System { action: "wait", source };
    for round in 0..ROUNDS {
        side.qp.recv(round, vec![0; 64])?;
        let message = side.done().await.map_err(failed)?;
        let peer = pd.create_ah(message.completion.peer.expect("a message has a sender"))?;
        side.qp.send(round, &peer, message.bytes().to_vec(), None)?;
        side.done().await.map_err(failed)?;
    }
    Ok(())
}

async fn ask(side: AsyncQp, pd: ProtectionDomain, server: SocketAddr) -> Result<(), Error> {
    let failed = |source| Error::System { action: "wait", source };
    let server = pd.create_ah(server)?;
    for round in 0..ROUNDS {
        let text = format!("message {round}").into_bytes();
        side.qp.recv(1, vec![0; 64])?;
        side.qp.send(0, &server, text.clone(), None)?;
        let both = [side.done().await.map_err(failed)?, side.done().await.map_err(failed)?];
        let answer = both.iter().find(|done| done.completion.wr_id == 1).expect("one of the two");
        assert_eq!(answer.bytes(), text);
    }
    println!("{ROUNDS} messages came back");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let context = Device::find("127.0.0.1")?.open()?;
        let (near, far) = (context.alloc_pd(), context.alloc_pd());
        let (client, server) = (AsyncQp::new(&context, &near)?, AsyncQp::new(&context, &far)?);
        let name = server.qp.name();
        let echoing = tokio::spawn(echo(server, far));
        ask(client, near, name).await?;
        echoing.await?.map_err(Into::into)
    })
}
