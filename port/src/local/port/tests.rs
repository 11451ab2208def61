mod garbage;

use super::*;
use erd_sys::clock::monotonic_ns;

/// A port of a process of its own, as far as the others know.
fn port(number: u16, process: u8) -> LocalPort {
    let name = SocketAddr::from(([127, 0, 5, 7], number));
    // Other tests of this program have others.
    let thread = format!("{:?}", std::thread::current().id());
    let mut id = [process; 16];
    id.iter_mut().skip(1).zip(thread.bytes().rev()).for_each(|(to, byte)| *to = byte);
    let process = ProcessId(id);
    LocalPort::open(Options { name, dir: None, process, descriptors: 1 << 20 }).expect("a port")
}

type Seen = Vec<(u8, Vec<u8>)>;

fn polled(port: &mut LocalPort) -> Seen {
    let mut seen = Seen::new();
    port.poll(monotonic_ns(), &mut |_, kind, bytes| {
        seen.push((kind, bytes.to_vec()));
        Fate::Taken
    });
    seen
}

fn worked(port: &mut LocalPort) -> Vec<Event> {
    let mut events = Vec::new();
    port.look_at_ns = 0;
    port.work(monotonic_ns(), &mut |event| {
        if !matches!(event, Event::Room(_)) {
            events.push(event);
        }
    });
    events
}

fn put(port: &mut LocalPort, link: LinkId, kind: u8, bytes: &[u8]) -> Result<u64, Refused> {
    port.put(link, kind, bytes.len(), &mut |write| write(bytes)).expect("a link")
}

/// Links two ports; the first asks.
fn join(one: &mut LocalPort, other: &mut LocalPort) -> (LinkId, LinkId) {
    assert_eq!(one.reach(other.options.name, monotonic_ns()), Reach::Asked);
    assert_eq!(one.reach(other.options.name, monotonic_ns()), Reach::Asked, "once is enough");
    let up = worked(other);
    let [Event::Up(name, there)] = up[..] else { panic!("{up:?}") };
    assert_eq!(name, one.options.name);
    let up = worked(one);
    let [Event::Up(_, here)] = up[..] else { panic!("{up:?}") };
    assert_eq!(one.reach(other.options.name, monotonic_ns()), Reach::Link(here));
    assert_eq!(other.reach(one.options.name, monotonic_ns()), Reach::Link(there));
    (here, there)
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn what_one_writes_the_other_reads() {
    let (mut one, mut other) = (port(1, 1), port(2, 2));
    let (here, there) = join(&mut one, &mut other);
    for round in 0..2000_u32 {
        let bytes = vec![round as u8; (round as usize * 7) % 4000];
        put(&mut one, here, 1, &bytes).expect("room");
        assert_eq!(polled(&mut other), [(1, bytes)], "round {round}");
        put(&mut other, there, 2, &round.to_be_bytes()).expect("room");
        assert_eq!(polled(&mut one), [(2, round.to_be_bytes().to_vec())]);
    }
    let written = put(&mut one, here, 1, b"last").expect("room");
    assert!(one.read_by_peer(here).expect("a link") < written);
    polled(&mut other);
    assert_eq!(one.read_by_peer(here), Some(written));
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn an_entry_comes_in_pieces_and_long_ones_make_the_ring_longer() {
    let (mut one, mut other) = (port(3, 1), port(4, 2));
    let (here, _) = join(&mut one, &mut other);
    let long = vec![7; ENTRY_MAX_BYTES - 3];
    let put = one.put(here, 9, ENTRY_MAX_BYTES, &mut |write| {
        write(b"abc");
        write(&long);
    });
    assert!(put.expect("a link").is_ok());
    let seen = polled(&mut other);
    assert_eq!((seen[0].0, &seen[0].1[..3], seen[0].1.len()), (9, &b"abc"[..], ENTRY_MAX_BYTES));
    assert_eq!(&seen[0].1[3..], &long[..]);
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn offers_that_cross_make_one_link() {
    let (mut one, mut other) = (port(5, 1), port(6, 2));
    assert_eq!(one.reach(other.options.name, monotonic_ns()), Reach::Asked);
    assert_eq!(other.reach(one.options.name, monotonic_ns()), Reach::Asked);
    let mut up = [0, 0];
    for _ in 0..4 {
        for (port, up) in [&mut one, &mut other].into_iter().zip(&mut up) {
            let events = worked(port);
            assert!(events.iter().all(|event| matches!(event, Event::Up(..))), "{events:?}");
            *up += events.len();
        }
    }
    assert_eq!(up, [1, 1]);
    let Reach::Link(here) = one.reach(other.options.name, monotonic_ns()) else { panic!("a link") };
    put(&mut one, here, 1, b"x").expect("room");
    assert_eq!(polled(&mut other), [(1, b"x".to_vec())]);
    assert!(one.meetings.is_empty() && other.meetings.is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn what_was_written_before_a_link_was_closed_is_read() {
    let (mut one, mut other) = (port(7, 1), port(8, 2));
    let (here, there) = join(&mut one, &mut other);
    for number in 0..40 {
        put(&mut one, here, 1, &[number]).expect("room");
    }
    let read = put(&mut other, there, 1, b"read").expect("room");
    assert_eq!(polled(&mut one).len(), 1);
    put(&mut other, there, 1, b"not read").expect("room");
    drop(one);
    let mut seen = Seen::new();
    let mut events = Vec::new();
    for _ in 0..3 {
        seen.extend(polled(&mut other));
        events.extend(worked(&mut other));
    }
    assert_eq!(seen.len(), 40);
    let name = SocketAddr::from(([127, 0, 5, 7], 7));
    assert!(
        matches!(events[..], [Event::Down(down, link, End::Closed | End::Died, count)]
            if (down, link, count) == (name, there, read)),
        "{events:?}"
    );
    assert_eq!((other.links(), other.read_by_peer(there)), (0, None));
    assert!(other.put(there, 1, 0, &mut |_| ()).is_none());
    assert_eq!(other.reach(name, monotonic_ns()), Reach::None, "nobody is there");
    assert!(other.seen.is_empty() && other.watched.is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn bytes_of_a_peer_that_has_closed_the_link_do_not_count() {
    let (mut one, mut other, mut third) = (port(74, 1), port(75, 2), port(76, 2));
    let (here, there) = join(&mut one, &mut other);
    // The peer's process goes on.
    join(&mut one, &mut third);
    let mut theirs = *b"buffer";
    let mut read = || {
        let mut mine = [0_u8; 6];
        let piece = |bytes: &mut [u8]| {
            [libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }]
        };
        let (mut from, mut to) = (piece(&mut theirs), piece(&mut mine));
        // SAFETY: both buffers stay until the call returns.
        (unsafe { one.pull(here, &mut from, &mut to, 6) }, mine)
    };
    assert_eq!(read(), (Pulled::Done, *b"buffer"));
    other.close(there);
    assert_eq!(read().0, Pulled::Gone, "the peer has its buffer back");
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn a_ring_is_looked_at_in_each_step_while_it_is_in_use() {
    let (mut one, mut other) = (port(77, 1), port(78, 2));
    let (here, _) = join(&mut one, &mut other);
    let mut now = monotonic_ns();
    let mut poll = |later_ns| {
        now += later_ns;
        let mut seen = Seen::new();
        other.poll(now, &mut |_, kind, bytes| {
            seen.push((kind, bytes.to_vec()));
            Fate::Taken
        });
        (seen, other.watched.len())
    };
    for round in 0..3 {
        put(&mut one, here, round, b"x").expect("room");
        assert_eq!(poll(0), (vec![(round, b"x".to_vec())], 1), "the bell tells of it");
        assert_eq!(poll(WATCH_NS / 2), (Seen::new(), 1), "it was in use lately");
        assert_eq!(poll(WATCH_NS), (Seen::new(), 0), "it is idle");
    }
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn who_offers_again_has_forgotten_the_link_before() {
    let (mut one, mut other) = (port(9, 1), port(10, 2));
    let (here, there) = join(&mut one, &mut other);
    one.close(here);
    assert_eq!(one.reach(other.options.name, monotonic_ns()), Reach::Asked);
    let events = worked(&mut other);
    let [Event::Down(_, down, End::Closed, _), Event::Up(_, up)] = events[..] else {
        panic!("{events:?}")
    };
    assert!(down == there && up != there);
    let events = worked(&mut one);
    assert!(matches!(events[..], [Event::Down(..), Event::Up(..)]), "{events:?}");
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn who_offers_again_is_answered_when_everything_has_been_read() {
    let (mut one, mut other) = (port(121, 1), port(122, 2));
    let (here, _) = join(&mut one, &mut other);
    for number in 0..100_u8 {
        put(&mut one, here, 1, &[number]).expect("room");
    }
    one.close(here);
    assert_eq!(one.reach(other.options.name, monotonic_ns()), Reach::Asked);
    assert_eq!(worked(&mut other), [], "the link before has entries");
    let mut seen = Seen::new();
    while seen.len() < 100 {
        seen.extend(polled(&mut other));
    }
    assert!(seen.iter().zip(0..).all(|((_, bytes), number)| bytes[..] == [number]));
    let mut events = worked(&mut other);
    events.extend(worked(&mut other));
    assert!(matches!(events[..], [Event::Down(..), Event::Up(..)]), "{events:?}");
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn an_endpoint_has_no_link_with_itself() {
    let mut port = port(123, 1);
    assert_eq!(port.reach(port.options.name, monotonic_ns()), Reach::None);
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn a_full_ring_takes_more_once_it_is_read() {
    let (mut one, mut other) = (port(11, 1), port(12, 2));
    let (here, _) = join(&mut one, &mut other);
    let mut count = 0;
    while put(&mut one, here, 1, &[0; 4000]).is_ok() {
        count += 1;
    }
    assert!(count > 50, "{count}: it grows");
    one.starve(here);
    assert_eq!(put(&mut one, here, 1, &[0; 4000]), Err(Refused::Full));
    assert!(polled(&mut one).is_empty());
    assert!(!one.arm(), "nothing is there");
    let mut seen = 0;
    while seen < count {
        seen += polled(&mut other).len();
    }
    assert!(one.set.is_ready(), "there is room: it is woken");
    polled(&mut one);
    assert!(put(&mut one, here, 1, &[0; 4000]).is_ok());
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn sleepers_are_woken_by_watched_and_other_rings() {
    let mut hub = port(20, 1);
    let mut others: Vec<LocalPort> = (21..30).map(|number| port(number, 2)).collect();
    let links: Vec<LinkId> = others.iter_mut().map(|other| join(other, &mut hub).0).collect();
    polled(&mut hub);
    // However slow this machine is, no ring counts as idle.
    hub.swept_ns = u64::MAX;
    for (other, link) in others.iter_mut().zip(&links).chain([]) {
        assert!(!hub.arm(), "nothing is there");
        assert!(!hub.set.is_ready());
        put(other, *link, 3, b"y").expect("room");
        assert!(hub.set.is_ready());
        assert_eq!(polled(&mut hub), [(3, b"y".to_vec())]);
        assert!(!hub.set.is_ready());
    }
    assert_eq!(hub.watched.len(), WATCHED_MAX);
    for (other, link) in others.iter_mut().zip(&links) {
        put(other, *link, 3, b"z").expect("room");
    }
    assert!(hub.arm(), "something is there already");
    assert_eq!(polled(&mut hub).len(), others.len());
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn a_peer_that_spoils_the_bell_keeps_nobody_from_being_heard() {
    let mut hub = port(40, 1);
    let mut others: Vec<LocalPort> = (41..50).map(|number| port(number, 2)).collect();
    let links: Vec<LinkId> = others.iter_mut().map(|other| join(other, &mut hub).0).collect();
    polled(&mut hub);
    for (other, link) in others.iter_mut().zip(&links) {
        put(other, *link, 3, b"y").expect("room");
    }
    // Somebody has taken back what the others have rung.
    while hub.bell.has_rung() {
        hub.bell.answer(|_| ());
    }
    let mut seen = 0;
    for step in 0..2 * hub.places.capacity() as u64 {
        hub.poll(monotonic_ns() + step * SWEEP_NS, &mut |_, _, _| {
            seen += 1;
            Fate::Taken
        });
    }
    assert_eq!(seen, others.len());
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn nobody_is_asked_beyond_the_limit_of_descriptors() {
    let mut one = port(60, 1);
    let mut other = port(61, 2);
    one.options.descriptors = 0;
    assert_eq!(one.reach(other.options.name, monotonic_ns()), Reach::None);
    assert_eq!(other.reach(one.options.name, monotonic_ns()), Reach::Asked);
    assert!(worked(&mut one).is_empty());
    assert_eq!(worked(&mut other), [Event::Refused(one.options.name)]);
    assert_eq!(other.places.len(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn an_entry_that_cannot_be_taken_yet_lets_its_reader_sleep_and_comes_again() {
    let (mut one, mut other) = (port(62, 1), port(63, 2));
    let (here, _) = join(&mut one, &mut other);
    for first in [true, false] {
        put(&mut one, here, 5, &[1; 100]).expect("room");
        let now = monotonic_ns();
        let fate = if first { Fate::Later } else { Fate::Waits };
        let mut looks = 0;
        for _ in 0..3 {
            other.poll(now, &mut |_, _, _| {
                looks += 1;
                fate
            });
            assert!(!other.arm(), "it can sleep");
            assert!(other.next_ns().is_some_and(|at| at <= now + KEPT_NS), "not for long");
        }
        assert!(looks >= 3);
        put(&mut one, here, 5, &[2; 100]).expect("room");
        assert_eq!(polled(&mut other).len(), 2);
        assert!(other.next_ns().is_some_and(|at| at > now + KEPT_NS));
    }
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn who_sleeps_while_others_look_is_woken() {
    let (mut one, mut other) = (port(64, 1), port(65, 2));
    let (here, _) = join(&mut one, &mut other);
    polled(&mut other);
    other.was_disarmed();
    assert!(!other.arm());
    assert!(polled(&mut other).is_empty(), "another thread looks");
    assert!(other.was_disarmed() && !other.was_disarmed(), "it says so once");
    other.rearm();
    assert!(!other.set.is_ready());
    put(&mut one, here, 1, b"x").expect("room");
    assert!(other.set.is_ready());
    assert_eq!(polled(&mut other).len(), 1);
    assert!(!other.set.is_ready());
    put(&mut one, here, 1, b"y").expect("room");
    other.rearm();
    assert!(other.set.is_ready(), "it was there before");
    assert_eq!(polled(&mut other).len(), 1);
    assert!(!other.set.is_ready() && other.was_disarmed());
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn a_crowd_at_the_door_does_not_keep_its_owner_awake() {
    let mut hub = port(66, 1);
    let name = hub.options.name;
    let ask = || Connection::open(name, None, usize::MAX).expect("a socket").expect("it listens");
    let crowd: Vec<Connection> = (0..=MEETINGS_MAX).map(|_| ask()).collect();
    let now = monotonic_ns();
    let mut events = Vec::new();
    for _ in 0..2 * MEETINGS_MAX {
        hub.look_at_ns = 0;
        hub.work(now, &mut |event| events.push(event));
    }
    assert_eq!(hub.meetings.len(), MEETINGS_MAX);
    assert!(!hub.set.is_ready(), "it sleeps, though one more is there");
    assert_eq!(hub.next_ns(), Some(now + FULL_NS));
    drop(crowd);
    let mut other = port(67, 2);
    assert_eq!(other.reach(name, now), Reach::Asked);
    for step in 1..4 {
        hub.work(now + step * FULL_NS, &mut |event| events.push(event));
    }
    assert!(matches!(events[..], [Event::Up(..)]), "{events:?}");
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn a_peer_that_clears_the_sleepers_word_delays_others_for_a_bounded_time() {
    let (mut one, mut other) = (port(68, 1), port(69, 2));
    let (here, _) = join(&mut one, &mut other);
    polled(&mut other);
    assert!(!other.arm());
    assert!(other.bell.must_wake(), "somebody clears it, and wakes nobody");
    let watched = other.watched.clone();
    watched.iter().for_each(|index| {
        other.places[*index as usize].iter_mut().for_each(|p| p.link.watch(true))
    });
    put(&mut one, here, 1, b"x").expect("room");
    assert!(!other.set.is_ready());
    while other.bell.has_rung() {
        other.bell.answer(|_| ());
    }
    let at = other.next_ns().expect("it does not sleep for ever");
    assert!(at <= monotonic_ns() + SLEEP_NS);
    let mut seen = 0;
    other.poll(at, &mut |_, _, _| {
        seen += 1;
        Fate::Taken
    });
    assert_eq!(seen, 1);
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn words_that_a_peer_sends_on_its_connection_wake_nobody() {
    let (mut one, mut other) = (port(70, 1), port(71, 2));
    let (here, _) = join(&mut one, &mut other);
    polled(&mut other);
    let place = one.places[here.index as usize].as_ref().expect("a link");
    place.seen_by.send(b"something", &[]).expect("sent");
    assert!(!other.set.is_ready());
}

#[test]
#[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
fn an_endpoint_whose_name_was_taken_is_found_once_it_is_free() {
    let name = SocketAddr::from(([127, 0, 5, 7], 72));
    let before = Listener::open(name, None).expect("a listener");
    let (mut one, mut other) = (port(72, 1), port(73, 2));
    let now = monotonic_ns();
    assert_eq!(one.reach(other.options.name, now), Reach::None, "it cannot prove its name");
    drop(before);
    for step in 0..4 {
        one.work(now + step * LISTEN_MAX_NS, &mut |_| ());
    }
    join(&mut other, &mut one);
}
