//! Every stream of frames within bounds is cut into its frames, however it comes.

use super::{Framed, LENGTH_BYTES, MAX_FRAME_BYTES, next_frame};

/// The frames of a stream that comes in these pieces, as [`super::InfoPath`] takes them, and whether all is well.
fn frames_of(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
    let (mut partial, mut frames) = (Vec::new(), Vec::new());
    for piece in pieces {
        partial.extend_from_slice(piece);
        let mut rest = &partial[..];
        loop {
            match next_frame(rest) {
                Framed::Frame(frame, after) => {
                    assert_eq!(rest[LENGTH_BYTES..][..frame.len()], *frame);
                    assert_eq!(after.len() + LENGTH_BYTES + frame.len(), rest.len());
                    frames.push(frame.to_vec());
                    rest = after;
                }
                Framed::Partial => break,
                Framed::Malformed => return (frames, false),
            }
        }
        assert!(rest.len() < LENGTH_BYTES + MAX_FRAME_BYTES, "less than a frame is left over");
        partial = rest.to_vec();
    }
    (frames, true)
}

fn stream(frames: &[Vec<u8>]) -> Vec<u8> {
    let one = |frame: &Vec<u8>| [&(frame.len() as u16).to_be_bytes()[..], frame].concat();
    frames.iter().flat_map(one).collect()
}

#[test]
fn every_length_is_a_frame_partial_or_malformed() {
    let longest = vec![7; usize::from(u16::MAX) + 1];
    for length in 0..=u16::MAX {
        let mut bytes = length.to_be_bytes().to_vec();
        let length = usize::from(length);
        let is_valid = (1..=MAX_FRAME_BYTES).contains(&length);
        assert_eq!(frames_of(&[&bytes]), (Vec::new(), is_valid), "{length}");
        // All of it except the last byte, then all of it, then more.
        bytes.extend_from_slice(&longest[..length.saturating_sub(1)]);
        assert_eq!(frames_of(&[&bytes]), (Vec::new(), is_valid), "{length}");
        for more in [1, 2] {
            bytes.push(0);
            let frames = if is_valid { vec![bytes[2..2 + length].to_vec()] } else { Vec::new() };
            assert_eq!(frames_of(&[&bytes]), (frames, is_valid), "{length} and {more}");
        }
    }
}

#[test]
fn frames_are_the_same_however_they_are_cut() {
    let frames: Vec<Vec<u8>> = [1, 2, 5, 1, 300].map(|len: usize| vec![len as u8; len]).to_vec();
    let bytes = stream(&frames);
    for one in 0..=bytes.len() {
        for other in one..=bytes.len() {
            let pieces = [&bytes[..one], &bytes[one..other], &bytes[other..]];
            assert_eq!(frames_of(&pieces), (frames.clone(), true), "{one}, {other}");
        }
    }
    // All ways to cut a short stream.
    let frames = [vec![1], vec![2, 3], vec![4, 5, 6], vec![7]];
    let bytes = stream(&frames);
    for cuts in 0u32..1 << (bytes.len() - 1) {
        let (mut pieces, mut from) = (Vec::new(), 0);
        for at in 1..=bytes.len() {
            if at == bytes.len() || cuts >> (at - 1) & 1 != 0 {
                pieces.push(&bytes[from..at]);
                from = at;
            }
        }
        assert_eq!(frames_of(&pieces), (frames.to_vec(), true), "{cuts:#b}");
    }
}

#[test]
fn what_follows_a_malformed_length_is_not_read() {
    let before = [vec![1], vec![2, 3]];
    for bad in [0, MAX_FRAME_BYTES as u16 + 1, u16::MAX] {
        let bytes = [stream(&before), bad.to_be_bytes().to_vec(), stream(&before)].concat();
        for cut in 0..=bytes.len() {
            let expected = (before.to_vec(), false);
            assert_eq!(frames_of(&[&bytes[..cut], &bytes[cut..]]), expected, "{bad} cut at {cut}");
        }
    }
}
