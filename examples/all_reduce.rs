//! A ring all-reduce across processes: each begins with numbers of its own, and ends with the sums.
//!
//! ```sh
//! cargo run --release --example all_reduce -- 4 1000000    # processes, numbers
//! ```
//!
//! Process 0 starts the others, which tell it their names over pipes; it tells each the name of its neighbour.

mod together;

use erd::verbs::{AddressHandle, Device, Done, Error, OwningQueuePair, ProtectionDomain, QpSizes};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use together::Other;

/// A neighbour that sends nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(30);

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
        let done = self.qp.wait(Some(PATIENCE))?.expect("the neighbours are quick");
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
    let args = |rank: usize| [rank.to_string(), count.to_string(), len.to_string()];
    let mut others: Vec<Other> = (1..count).map(|rank| Other::with_args(&args(rank))).collect();
    let mut names = vec![zero.qp.name().to_string()];
    names.extend(others.iter_mut().map(Other::line));
    for (rank, other) in (1..count).zip(&mut others) {
        other.tell(&names[(rank + 1) % count]);
    }
    zero.run(names[1 % count].parse().expect("a name"), len)?;
    others.into_iter().for_each(Other::finish);
    Ok(())
}

fn follow(rank: usize, count: usize, len: usize) -> Result<(), Error> {
    let told = together::end_with_first();
    let this = open(rank, count)?;
    println!("{}", this.qp.name());
    this.run(told.recv().expect("a line").parse().expect("a name"), len)
}

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &String| text.parse::<usize>().expect("a number");
    match args.as_slice() {
        [rank, count, len] => follow(number(rank), number(count), number(len)),
        [count, len] => lead(number(count).max(1), number(len)),
        _ => lead(4, 1_000_000),
    }
}
