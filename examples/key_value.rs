//! A key-value server whose clients read its memory: it serves no read itself.
//!
//! ```sh
//! cargo run --release --example key_value
//! ```
//!
//! A slot has the key, the value and a checksum over both, so that a client sees when it read a slot
//! in the middle of a change, and reads again. Changes are messages to the server.

mod together;

use erd::verbs::{
    Access, AddressHandle, Device, Done, Error, OwningQueuePair, QpSizes, RemoteAddr,
};
use std::time::Duration;
use together::Other;

/// A side that is silent for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(30);
const SLOTS: u64 = 1024;
const VALUE_BYTES: usize = 48;
const SLOT_BYTES: usize = 8 + VALUE_BYTES + 8;
/// What the message of a client says when it needs nothing more.
const BYE: u64 = u64::MAX;

type Slot = [u8; SLOT_BYTES];

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn slot(key: u64, value: &str) -> Slot {
    let mut slot = [0; SLOT_BYTES];
    slot[..8].copy_from_slice(&key.to_le_bytes());
    slot[8..8 + value.len()].copy_from_slice(value.as_bytes());
    let sum = checksum(&slot[..SLOT_BYTES - 8]);
    slot[SLOT_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
    slot
}

/// The value in a slot; `None` if it has another key, or is changing.
fn value(slot: &[u8], key: u64) -> Option<String> {
    let (content, sum) = slot.split_at(SLOT_BYTES - 8);
    let whole = sum == checksum(content).to_le_bytes() && content[..8] == key.to_le_bytes();
    whole.then(|| String::from_utf8_lossy(&content[8..]).trim_end_matches('\0').to_owned())
}

fn wait(qp: &OwningQueuePair) -> Result<Done, Error> {
    let done = qp.wait(Some(PATIENCE))?.expect("the other side is quick");
    assert!(done.completion.is_ok(), "{}", done.completion.reason());
    Ok(done)
}

/// Puts values until the client leaves. A message has the key as immediate data, and the slot.
fn serve() -> Result<(), Error> {
    let context = Device::find("127.0.0.1")?.open()?;
    let pd = context.alloc_pd();
    let qp = OwningQueuePair::new(&context, &pd, QpSizes::default())?;
    let table = pd.reg_mr(vec![0; SLOTS as usize * SLOT_BYTES], Access::REMOTE_READ)?;
    let RemoteAddr { addr, rkey } = table.remote();
    for wr_id in 0..16 {
        qp.recv(wr_id, vec![0; SLOT_BYTES])?;
    }
    let args = [qp.name().to_string(), addr.to_string(), rkey.to_string()];
    let client = Other::with_args(&args);
    let mut puts = 0;
    loop {
        let put = wait(&qp)?;
        let (Some(key), Some(peer)) = (put.completion.imm_data, put.completion.peer) else {
            continue;
        };
        if key == BYE {
            break;
        }
        table.write_at((key % SLOTS) as usize * SLOT_BYTES, put.bytes())?;
        puts += 1;
        qp.recv(0, put.buffer)?;
        // The client may read its own value from here on.
        qp.send(0, &pd.create_ah(peer)?, Vec::new(), Some(key))?;
    }
    println!("server: {puts} values were put, and no read was served");
    client.finish();
    Ok(())
}

/// Reads a value out of the server's memory.
fn get(
    qp: &OwningQueuePair,
    server: &AddressHandle,
    table: RemoteAddr,
    key: u64,
) -> Result<String, Error> {
    let at = table.offset(key % SLOTS * SLOT_BYTES as u64);
    loop {
        qp.read(key, server, vec![0; SLOT_BYTES], at)?;
        if let Some(value) = value(&wait(qp)?.buffer, key) {
            return Ok(value);
        }
    }
}

fn put(qp: &OwningQueuePair, server: &AddressHandle, key: u64, text: &str) -> Result<(), Error> {
    qp.recv(key, Vec::new())?;
    qp.send(key, server, slot(key, text).to_vec(), Some(key))?;
    // The message is sent, and answered.
    wait(qp).and(wait(qp)).map(drop)
}

fn use_server(name: &str, table: RemoteAddr) -> Result<(), Error> {
    together::end_with_first();
    let address = name.parse().expect("address:port");
    let context = Device::towards(address)?.open()?;
    let pd = context.alloc_pd();
    let qp = OwningQueuePair::new(&context, &pd, QpSizes::default())?;
    let server = pd.create_ah(address)?;
    for key in 0..200 {
        put(&qp, &server, key, &format!("value of {key}"))?;
    }
    put(&qp, &server, 7, "another value")?;
    for key in 0..200 {
        let expected = if key == 7 { "another value".into() } else { format!("value of {key}") };
        assert_eq!(get(&qp, &server, table, key)?, expected);
    }
    println!("client: 200 values were read as they were put");
    qp.send(0, &server, Vec::new(), Some(BYE))?;
    wait(&qp).map(drop)
}

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [name, addr, rkey] => {
            let number = |text: &String| text.parse().expect("a number");
            use_server(name, RemoteAddr { addr: number(addr), rkey: number(rkey) })
        }
        _ => serve(),
    }
}
