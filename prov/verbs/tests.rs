//! Queue pairs as a program uses them, two in one process, on loopback.

use super::*;
use std::time::{Duration, Instant};

/// After this long a completion that does not come has failed its test.
const PATIENCE: Duration = Duration::from_secs(20);

/// Everything that one side has.
struct Side {
    qp: QueuePair,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    context: Context,
}

impl Side {
    fn new() -> Side {
        Side::with(&ContextOptions::new(), |_| ())
    }

    fn with(options: &ContextOptions, change: impl FnOnce(&mut QpOptions<'_>)) -> Side {
        let context = Device::find("127.0.0.1").unwrap().open_with(options).unwrap();
        let (pd, cq) = (context.alloc_pd(), context.create_cq().unwrap());
        let mut options = QpOptions::new(&cq);
        change(&mut options);
        let qp = pd.create_qp(&options).unwrap();
        Side { qp, cq, pd, context }
    }

    fn knows(&self, other: &Side) -> AddressHandle {
        self.pd.create_ah(other.qp.name()).unwrap()
    }

    fn recv(&self, wr_id: u64, into: &mut [u8]) -> Result<(), PostError> {
        let sg_list = &[Sge::from(into)];
        // SAFETY: the tests keep their memory, and leave it alone, until it is done.
        unsafe { self.qp.post_recv(&[ReceiveRequest { wr_id, sg_list }]) }
    }

    fn post(
        &self,
        to: &AddressHandle,
        wr_id: u64,
        operation: Operation<'_>,
    ) -> Result<(), PostError> {
        let flags = SendFlags::SIGNALED;
        // SAFETY: as above.
        unsafe { self.qp.post_send(&[SendRequest { wr_id, to, operation, flags }]) }
    }

    fn send(&self, to: &AddressHandle, wr_id: u64, bytes: &[u8]) -> Result<(), PostError> {
        self.post(to, wr_id, Operation::Send { sg_list: &[Sge::from(bytes)], imm_data: None })
    }

    /// The next completion. The other side progresses meanwhile, by itself.
    fn done(&self) -> Completion {
        let mut place = [Completion::default()];
        let start = Instant::now();
        loop {
            if let [done] = self.cq.poll(&mut place).unwrap() {
                return *done;
            }
            assert!(start.elapsed() < PATIENCE, "no completion came");
        }
    }

    fn ok(&self) -> Completion {
        let done = self.done();
        assert!(done.is_ok(), "{}", done.reason());
        done
    }

    fn nothing(&self) {
        assert_eq!(self.cq.poll(&mut [Completion::default(); 4]).unwrap(), []);
    }
}

fn text(error: impl Into<Error>) -> String {
    error.into().to_string()
}

#[test]
fn messages_go_both_ways_with_and_without_immediate_data() {
    let (left, right) = (Side::new(), Side::new());
    let mut into = [0; 8];
    right.recv(7, &mut into).unwrap();
    let sg_list: &[Sge<'_>] = &[Sge::from(&b"ab"[..]), Sge::from(&b""[..]), Sge::from(&b"cd"[..])];
    let to_right = left.knows(&right);
    left.post(&to_right, 8, Operation::Send { sg_list, imm_data: Some(u64::MAX) }).unwrap();
    let received = right.ok();
    assert_eq!((received.wr_id, received.opcode, received.byte_len), (7, Opcode::Recv, 4));
    assert_eq!((received.imm_data, received.peer), (Some(u64::MAX), Some(left.qp.name())));
    assert_eq!((received.qp_num, &into), (right.qp.number(), b"abcd\0\0\0\0"));
    let sent = left.ok();
    assert_eq!((sent.wr_id, sent.opcode, sent.qp_num), (8, Opcode::Send, left.qp.number()));

    left.recv(9, &mut into).unwrap();
    let to_left = right.pd.create_ah(received.peer.unwrap()).unwrap();
    right.qp.send_inline(&to_left, b"back", None).unwrap();
    let received = left.ok();
    assert_eq!((received.wr_id, received.imm_data, &into[..4]), (9, None, &b"back"[..]));
    right.nothing();
}

#[test]
fn only_contexts_with_the_same_key_talk() {
    // The deadline is short: the one with the key waits for it.
    let options = |key| ContextOptions::new().setting("peer_timeout_ms", "500").key([key; 32]);
    let side = |key| Side::with(&options(key), |_| {});
    let (left, right, stranger) = (side(1), side(1), side(2));
    let mut into = [0; 4];
    right.recv(7, &mut into).unwrap();
    left.send(&left.knows(&stranger), 8, b"none").unwrap();
    let failed = left.done();
    assert!(!failed.is_ok() && failed.reason().contains("key"), "{}", failed.reason());
    left.send(&left.knows(&right), 9, b"same").unwrap();
    left.ok();
    right.ok();
    assert_eq!(&into, b"same");
}

#[test]
fn a_list_is_posted_in_order_until_one_is_refused() {
    let (left, right) = (Side::new(), Side::new());
    let (to_right, elsewhere) = (left.knows(&right), right.knows(&right));
    let mut into = [[0_u8; 4]; 3];
    let [a, b, c] = &mut into;
    let sges = [[Sge::from(&mut a[..])], [Sge::from(&mut b[..])], [Sge::from(&mut c[..])]];
    let receive = |at: usize| ReceiveRequest { wr_id: at as u64, sg_list: &sges[at] };
    // SAFETY: the memory outlives the queue pair.
    unsafe { right.qp.post_recv(&[receive(0), receive(1), receive(2)]) }.unwrap();
    let sg_list = &[Sge::from(&b"xyz"[..])];
    let send = |wr_id, to| {
        let operation = Operation::Send { sg_list, imm_data: Some(wr_id) };
        SendRequest { wr_id, to, operation, flags: SendFlags::default() }
    };
    let list = [send(0, &to_right), send(1, &to_right), send(2, &elsewhere), send(3, &to_right)];
    // SAFETY: as above.
    let refused = unsafe { left.qp.post_send(&list) }.unwrap_err();
    assert_eq!(refused.posted, 2);
    assert!(text(refused).contains("one of the queue pair's protection domain"));
    let received = [right.ok(), right.ok()].map(|done| (done.wr_id, done.imm_data));
    assert_eq!(received, [(0, Some(0)), (1, Some(1))]);
    left.nothing();
}

#[test]
fn memory_is_written_read_and_changed() {
    let (left, right) = (Side::new(), Side::new());
    let all = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let region = right.pd.reg_mr(vec![0; 64], all).unwrap();
    let (to_right, remote) = (left.knows(&right), region.remote());
    let sg_list = &[Sge::from(&b"written"[..])];
    left.post(&to_right, 1, Operation::RdmaWrite { sg_list, remote, imm_data: Some(5) }).unwrap();
    assert_eq!((left.ok().wr_id, left.cq.users()), (1, 2));
    let told = right.ok();
    assert_eq!((told.opcode, told.byte_len), (Opcode::RecvRdmaWithImm, 7));
    assert_eq!((told.wr_id, told.imm_data, told.peer), (0, Some(5), Some(left.qp.name())));
    let mut found = [0; 7];
    region.read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"written");

    region.write_at(8, b"to be read").unwrap();
    let mut into = [0; 10];
    let sg_list = &[Sge::from(&mut into[..])];
    left.post(&to_right, 2, Operation::RdmaRead { sg_list, remote: remote.offset(8) }).unwrap();
    assert_eq!((left.ok().opcode, &into), (Opcode::RdmaRead, b"to be read"));

    let number = region.atomic_u64(32).unwrap();
    number.store(40, std::sync::atomic::Ordering::Relaxed);
    let (mut old, remote) = ([0; 8], remote.offset(32));
    let result = Sge::from(&mut old[..]);
    left.post(&to_right, 3, Operation::FetchAdd { result, remote, add: 2 }).unwrap();
    assert_eq!((left.ok().opcode, u64::from_ne_bytes(old)), (Opcode::Atomic, 40));
    for (compare, before) in [(41, 42), (42, 42), (42, 7)] {
        let result = Sge::from(&mut old[..]);
        let operation = Operation::CompareSwap { result, remote, compare, swap: 7 };
        left.post(&to_right, 4, operation).unwrap();
        assert_eq!((left.ok().wr_id, u64::from_ne_bytes(old)), (4, before));
    }
    let memory = region.dereg().expect("the region owned its memory");
    assert_eq!((&memory[..7], memory[32]), (&b"written"[..], 7));
}

#[test]
fn memory_is_reached_only_with_its_key_its_rights_and_within_its_domain() {
    let (left, right) = (Side::new(), Side::new());
    let to_right = left.knows(&right);
    let read_only = right.pd.reg_mr(vec![1; 16], Access::REMOTE_READ).unwrap();
    let other_pd = right.context.alloc_pd();
    let others = other_pd.reg_mr(vec![1; 16], Access::REMOTE_WRITE).unwrap();
    let gone = right.pd.reg_mr(vec![1; 16], Access::REMOTE_WRITE).unwrap().remote();
    let local = right.pd.reg_mr(vec![1; 16], Access::empty()).unwrap();
    assert_eq!(local.rkey(), u64::MAX);
    let past = RemoteAddr { addr: read_only.remote().addr + 9, ..read_only.remote() };
    let sg_list = &[Sge::from(&b"12345678"[..])];
    for remote in [read_only.remote(), others.remote(), gone, local.remote()] {
        left.post(&to_right, 1, Operation::RdmaWrite { sg_list, remote, imm_data: None }).unwrap();
        assert_eq!(left.done().status, Status::RemoteAccess);
    }
    let mut into = [0; 8];
    let sg_list = &[Sge::from(&mut into[..])];
    left.post(&to_right, 2, Operation::RdmaRead { sg_list, remote: past }).unwrap();
    let refused = left.done();
    assert_eq!((refused.status, refused.peer), (Status::RemoteAccess, Some(right.qp.name())));
    assert!(refused.reason().contains("past the memory"), "{}", refused.reason());
    left.post(&to_right, 3, Operation::RdmaRead { sg_list, remote: read_only.remote() }).unwrap();
    assert_eq!((left.ok().wr_id, into), (3, [1; 8]));
}

#[test]
fn a_full_queue_refuses_and_goes_on() {
    let left = Side::with(&ContextOptions::new(), |options| {
        (options.max_send_wr, options.max_recv_wr) = (2, 1);
    });
    let right = Side::new();
    let to_right = left.knows(&right);
    let mut into = [0; 4];
    right.recv(0, &mut into).unwrap();
    for wr_id in 0..2 {
        left.send(&to_right, wr_id, b"full").unwrap();
    }
    assert_eq!(right.ok().byte_len, 4);
    let refused = left.send(&to_right, 2, b"full").unwrap_err();
    assert_eq!((refused.posted, refused.error.errno()), (0, libc::ENOMEM));
    assert!(text(refused).contains("the send queue is full"));
    assert_eq!(left.ok().wr_id, 0);
    left.send(&to_right, 3, b"room").unwrap();
    let (mut one, mut two) = ([0; 4], [0; 4]);
    left.recv(4, &mut one).unwrap();
    assert!(text(left.recv(5, &mut two).unwrap_err()).contains("the receive queue is full"));
}

#[test]
fn a_message_that_does_not_fit_is_cut_and_reported() {
    let (left, right) = (Side::new(), Side::new());
    let mut into = [0; 3];
    right.recv(6, &mut into).unwrap();
    left.send(&left.knows(&right), 1, b"12345").unwrap();
    let cut = right.done();
    assert_eq!((cut.wr_id, cut.status, cut.opcode), (6, Status::LocalLength, Opcode::Recv));
    assert_eq!((cut.byte_len, cut.peer, &into), (3, Some(left.qp.name()), b"123"));
    assert!(left.ok().is_ok());
}

#[test]
fn a_peer_that_closes_or_is_not_there_fails_its_requests() {
    let left = Side::with(&ContextOptions::new().setting("peer_timeout_ms", "200"), |_| ());
    let right = Side::new();
    let (to_right, long) = (left.knows(&right), vec![0; 1 << 20]);
    left.send(&to_right, 1, &long).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    drop(right);
    let failed = left.done();
    assert_eq!((failed.wr_id, failed.status), (1, Status::RemoteAborted));
    let nobody = left.pd.create_ah("127.0.0.1:9".parse().unwrap()).unwrap();
    left.send(&nobody, 2, b"hello").unwrap();
    let failed = left.done();
    assert_eq!((failed.wr_id, failed.status), (2, Status::RetryExceeded));
    assert_eq!(failed.peer, Some(nobody.peer()));
}

#[test]
fn who_sleeps_on_the_file_descriptor_is_woken() {
    let (left, right) = (Side::new(), Side::new());
    let mut into = [0; 8];
    right.recv(1, &mut into).unwrap();
    assert!(!right.cq.wait(Some(Duration::from_millis(1))).unwrap(), "nothing was sent");
    let to_right = left.knows(&right);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            while right.cq.req_notify().unwrap() == Notify::Armed {
                let fd = std::os::fd::AsRawFd::as_raw_fd(&right.cq.fd().unwrap());
                let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one structure of our own.
                let ready = unsafe { libc::poll(&raw mut poll, 1, PATIENCE.as_millis() as i32) };
                assert_eq!(ready, 1, "nobody was woken");
            }
            right.ok()
        });
        std::thread::sleep(Duration::from_millis(20));
        left.send(&to_right, 2, b"wake up").unwrap();
        assert_eq!(sleeper.join().unwrap().byte_len, 7);
    });
    assert!(left.cq.wait(None).unwrap());
    assert_eq!(left.ok().wr_id, 2);
    let again =
        [right.cq.wait(Some(Duration::ZERO)).unwrap(), left.cq.wait(Some(Duration::ZERO)).unwrap()];
    assert_eq!(again, [false, false]);
}

#[test]
fn contexts_of_one_process_have_their_own_controllers_and_paths() {
    let sides = ["strack", "udmp", "dctcp"].map(|name| {
        let options = ContextOptions::new().controller(name).paths(2);
        let side = Side::with(&options, |_| ());
        assert_eq!((side.context.controller(), side.context.paths()), (name, 2));
        side
    });
    let bytes = vec![7; 300_000];
    for from in &sides {
        for to in &sides {
            let mut into = vec![0; bytes.len()];
            to.recv(1, &mut into).unwrap();
            from.send(&from.knows(to), 2, &bytes).unwrap();
            let done = [to.ok(), from.ok()].map(|done| done.wr_id);
            assert!(done == [1, 2] || std::ptr::eq(from, to), "{done:?}");
            assert!(into == bytes, "the bytes are not those that were sent");
        }
    }
}

#[test]
fn arguments_that_are_not_valid_are_named_with_what_would_be() {
    let device = Device::find("127.0.0.1").unwrap();
    let refused = |options: ContextOptions| text(device.open_with(&options).err().unwrap());
    let options = ContextOptions::new;
    for (error, part) in [
        (refused(options().controller("cubic")), "FI_ERD_CC is \"cubic\"; valid: auto, erd,"),
        (refused(options().paths(300)), "FI_ERD_PATHS is \"300\"; valid: auto, or 1 to 256"),
        (refused(options().setting("pahts", "1")), "valid: one of the settings iface, device"),
        (text(Device::find("eth99").unwrap_err()), "no device is called eth99; there are: "),
        (text(Device::find("192.0.2.1").unwrap_err()), "lo (127.0.0.1)"),
    ] {
        assert!(error.contains(part), "{error}");
    }
    let side = Side::new();
    let by_name = |name| text(side.pd.create_ah_by_name(name).err().unwrap());
    let by_addr = |name: &str| text(side.pd.create_ah(name.parse().unwrap()).err().unwrap());
    for (error, part) in [
        (by_name("127.0.0.1"), "name is \"127.0.0.1\"; valid: host:port"),
        (by_addr("127.0.0.1:0"), "address is 127.0.0.1:0; valid: an IPv4 address of one host"),
        (by_addr("[::1]:5"), "valid: an IPv4 address"),
    ] {
        assert!(error.contains(part), "{error}");
    }
    let sized =
        |max_send_wr| side.pd.create_qp(&QpOptions { max_send_wr, ..QpOptions::new(&side.cq) });
    let error = text(sized(65_537).err().unwrap());
    assert_eq!(error, "max_send_wr is 65537; valid: 1 to 65536, or 0 for 4096");
    let port = side.qp.name().port();
    let taken = side.pd.create_qp(&QpOptions { port, ..QpOptions::new(&side.cq) }).err().unwrap();
    assert_eq!(taken.errno(), libc::EADDRINUSE);
    let by_name = format!("localhost:{port}");
    assert_eq!(side.pd.create_ah_by_name(&by_name).unwrap().peer(), side.qp.name());
}

#[test]
fn requests_that_are_not_valid_are_refused() {
    let side = Side::new();
    let to = side.knows(&side);
    let (remote, long) = (RemoteAddr::default(), [Sge::from(&b"x"[..]); 9]);
    let refused = |operation, flags| {
        // SAFETY: nothing is posted.
        let posted =
            unsafe { side.qp.post_send(&[SendRequest { wr_id: 1, to: &to, operation, flags }]) };
        text(posted.unwrap_err())
    };
    let none = SendFlags::default();
    let large = vec![0; 1025];
    let (large, mut word) = ([Sge::from(&large[..])], [0; 4]);
    let result = Sge::from(&mut word[..]);
    for (error, part) in [
        (refused(Operation::Send { sg_list: &long, imm_data: None }, none), "sg_list is 9 long"),
        (
            refused(Operation::Send { sg_list: &large, imm_data: None }, SendFlags::INLINE),
            "1024 inline",
        ),
        (
            refused(Operation::RdmaRead { sg_list: &[], remote }, SendFlags::INLINE),
            "INLINE for sends and writes alone",
        ),
        (
            refused(Operation::FetchAdd { result, remote, add: 1 }, none),
            "length of the result is 4; valid: 8",
        ),
    ] {
        assert!(error.contains(part), "{error}");
    }
    let region = side.pd.reg_mr(vec![0; 9], Access::REMOTE_READ).unwrap();
    for (error, part) in [
        (
            region.read_at(8, &mut [0; 2]).unwrap_err(),
            "offset is 8, and the length 2; valid: up to 9",
        ),
        (region.write_at(usize::MAX, &[0]).unwrap_err(), "up to 9 in all"),
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(region.atomic_u64(2).is_err());
    side.qp.close();
    assert_eq!(side.send(&to, 1, b"late").unwrap_err().error.errno(), libc::ESHUTDOWN);
    side.nothing();
}

#[test]
fn what_belongs_elsewhere_or_to_nobody_is_refused() {
    let (left, right) = (Side::new(), Side::new());
    let foreign = right.knows(&left);
    let error = text(left.send(&foreign, 1, b"lost").unwrap_err());
    assert!(error.contains("one of the queue pair's protection domain"), "{error}");
    let mut bytes = [0; 8];
    for (start, len_bytes, part) in [
        (std::ptr::null_mut(), 8, "addr is NULL; valid: "),
        (bytes.as_mut_ptr(), usize::MAX, "what is left of the address space"),
    ] {
        // SAFETY: what is wrong is refused before it is used.
        let refused = unsafe { left.pd.reg_mr_raw(start, len_bytes, Access::REMOTE_READ) };
        let error = text(refused.err().unwrap());
        assert!(error.contains(part), "{error}");
    }
    let sent = left.knows(&right);
    let nowhere = Sge::raw(std::ptr::null_mut(), 4);
    let operation = Operation::Send { sg_list: &[nowhere], imm_data: None };
    let error = text(left.post(&sent, 1, operation).unwrap_err());
    assert!(error.starts_with("addr in sg_list is NULL"), "{error}");
    left.nothing();
}

#[test]
fn a_request_that_is_refused_gives_its_buffer_back() {
    let context = Device::find("127.0.0.1").unwrap().open().unwrap();
    let (pd, other) = (context.alloc_pd(), context.alloc_pd());
    let sizes = QpSizes { max_recv_wr: 1, ..QpSizes::default() };
    let qp = OwningQueuePair::new(&context, &pd, sizes).unwrap();
    qp.recv(1, vec![1; 4]).unwrap();
    let full = qp.recv(2, vec![2; 4]).unwrap_err();
    assert_eq!((full.buffer, full.error.errno()), (vec![2; 4], libc::ENOMEM));
    let foreign = other.create_ah(qp.name()).unwrap();
    let refused = qp.send(3, &foreign, vec![3; 4], None).unwrap_err();
    assert_eq!((refused.buffer, refused.error.errno()), (vec![3; 4], libc::EINVAL));
    let own = pd.create_ah(qp.name()).unwrap();
    qp.send(4, &own, vec![4; 4], None).unwrap();
    let mut done = [0, 0].map(|_| qp.wait(Some(PATIENCE)).unwrap().expect("a completion"));
    done.sort_by_key(|done| done.completion.wr_id);
    assert_eq!(
        done.map(|done| (done.completion.wr_id, done.buffer)),
        [(1, vec![4; 4]), (4, vec![4; 4])]
    );
}
