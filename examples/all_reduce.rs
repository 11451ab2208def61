//! A ring all-reduce across processes: each begins with numbers of its own, and ends with the sums.
//!
//! ```sh
//! cargo run --release --example all_reduce -- 4 1000000    # processes, numbers
//! ```
//!
//! Process 0 starts the others, which tell it their names; it tells each the name of its neighbour.

use erd::verbs::{AddressHandle, Device, Done, Error, OwningQueuePair, ProtectionDomain, QpSizes};
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::Instant;

const NAME_BYTES: usize = 64;

struct Rank {
    rank: usize,
    count: usize,
    qp: OwningQueuePair,
    pd: ProtectionDomain,
}

fn open(rank: usize, count: usize) -> Result<Rank, Error> {
    let context = Device::find("127.0.0.1")?.open()?;
    let pd = context.alloc_pd();
    let qp = OwningQueuePair::new(&context, &pd, QpSizes::default())?;
    Ok(Rank { rank, count, qp, pd })
}

impl Rank {
    fn wait(&self) -> Result<Done, Error> {
        let done = self.qp.wait(None)?.expect("it waits without end");
        assert!(done.completion.is_ok(), "{}", done.completion.reason());
        Ok(done)
    }

    /// Sends to the neighbour, and receives from the other one, as many bytes.
    fn shift(
        &self,
        next: &AddressHandle,
        out: Vec<u8>,
        into_bytes: usize,
    ) -> Result<Vec<u8>, Error> {
        const RECV: u64 = 1;
        self.qp.recv(RECV, vec![0; into_bytes])?;
        self.qp.send(0, next, out, None)?;
        let both = [self.wait()?, self.wait()?];
        let received = both.into_iter().find(|done| done.completion.wr_id == RECV);
        Ok(received.expect("one of the two").buffer)
    }

    /// Adds up `numbers` of all ranks, in place: one piece for each rank goes around twice, first
    /// to be summed, then to be told.
    fn all_reduce(&self, next: &AddressHandle, numbers: &mut [f32]) -> Result<(), Error> {
        let (rank, count, len) = (self.rank, self.count, numbers.len());
        let piece = |index: usize| {
            let index = index % count;
            len * index / count..len * (index + 1) / count
        };
        for step in 0..2 * (count - 1) {
            let summing = step < count - 1;
            let out = piece(rank + 2 * count - step);
            let into = piece(rank + 2 * count - step - 1);
            let bytes = numbers[out].iter().flat_map(|number| number.to_le_bytes()).collect();
            let received = self.shift(next, bytes, into.len() * 4)?;
            for (number, bytes) in numbers[into].iter_mut().zip(received.chunks_exact(4)) {
                let came = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                *number = if summing { *number + came } else { came };
            }
        }
        Ok(())
    }

    fn run(&self, next: SocketAddr, len: usize) -> Result<(), Error> {
        let next = self.pd.create_ah(next)?;
        let mut numbers: Vec<f32> = (0..len).map(|at| (self.rank + at % 100) as f32).collect();
        let start = Instant::now();
        self.all_reduce(&next, &mut numbers)?;
        let seconds = start.elapsed().as_secs_f64();
        let ranks: usize = (0..self.count).sum();
        for (at, sum) in numbers.iter().enumerate() {
            assert_eq!(*sum, (ranks + self.count * (at % 100)) as f32, "number {at}");
        }
        if self.rank == 0 {
            let gigabytes = (len * 4) as f64 / 1e9;
            println!(
                "{len} numbers of {} ranks summed at {:.2} GB/s",
                self.count,
                gigabytes / seconds
            );
        }
        Ok(())
    }
}

fn lead(count: usize, len: usize) -> Result<(), Error> {
    let zero = open(0, count)?;
    (1..count).try_for_each(|_| zero.qp.recv(0, Vec::new()))?;
    let start = |rank: usize| {
        let args =
            [zero.qp.name().to_string(), rank.to_string(), count.to_string(), len.to_string()];
        Command::new(std::env::args().next().expect("a name")).args(args).spawn()
    };
    let others: Vec<Child> = (1..count).map(|rank| start(rank).expect("a process")).collect();
    let mut names = vec![zero.qp.name(); count];
    for _ in 1..count {
        let hello = zero.wait()?.completion;
        let rank = hello.imm_data.expect("a rank") as usize;
        names[rank] = hello.peer.expect("a name");
    }
    for rank in 1..count {
        let next = names[(rank + 1) % count].to_string().into_bytes();
        zero.qp.send(0, &zero.pd.create_ah(names[rank])?, next, None)?;
        zero.wait()?;
    }
    zero.run(names[1 % count], len)?;
    for mut other in others {
        assert!(other.wait().expect("it ends").success());
    }
    Ok(())
}

fn follow(leader: SocketAddr, rank: usize, count: usize, len: usize) -> Result<(), Error> {
    let this = open(rank, count)?;
    this.qp.recv(0, vec![0; NAME_BYTES])?;
    this.qp.send(1, &this.pd.create_ah(leader)?, Vec::new(), Some(rank as u64))?;
    let both = [this.wait()?, this.wait()?];
    let next = both.iter().find(|done| done.completion.wr_id == 0).expect("one of the two");
    let next = String::from_utf8_lossy(next.bytes()).parse().expect("a name");
    this.run(next, len)
}

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &String| text.parse::<usize>().expect("a number");
    match args.as_slice() {
        [leader, rank, count, len] => {
            follow(leader.parse().expect("a name"), number(rank), number(count), number(len))
        }
        [count, len] => lead(number(count).max(1), number(len)),
        _ => lead(4, 1_000_000),
    }
}
