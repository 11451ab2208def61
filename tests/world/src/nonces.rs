//! A job's key that notices when a counter serves for two packets of one secret: that would give the key away. It can
//! also tell what its packets were before it changed them.

use erd_crypto::{JobKey, Keyring};
use erd_rd::keys::{Cipher, Keys, Loose, PROOF_BYTES, Secret};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};

/// The counters used so far, each with its secret.
type Used = Arc<Mutex<HashSet<([u8; 32], u64)>>>;

/// Packets of sessions as they go over the network, each with what it was before its key changed it: without counter and
/// proof, and readable. Its clones are one.
#[derive(Clone, Debug)]
pub struct Plains {
    /// The most packets; it does not know those after.
    most: usize,
    known: Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>,
}

impl Plains {
    /// None so far, and at most so many.
    pub fn new(most: usize) -> Plains {
        Plains { most, known: Arc::default() }
    }

    /// What the packet was. `None` if no watched key made it.
    pub fn of(&self, packet: &[u8]) -> Option<Vec<u8>> {
        self.known.lock().expect("no panic holds it").get(packet).cloned()
    }

    fn note(&self, [head, rest]: [&[u8]; 2], plain: &[u8], counter: u64, proof: &[u8]) {
        let mut known = self.known.lock().expect("no panic holds it");
        if known.len() < self.most {
            let packet = [head, rest, &counter.to_be_bytes(), proof].concat();
            known.insert(packet, [head, plain].concat());
        }
    }
}

/// See the module. All processes of a world share it.
pub struct WatchedKeys {
    keys: Keyring,
    phase_bits: u32,
    used: Used,
    plains: Option<Plains>,
}

impl fmt::Debug for WatchedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.used.lock().expect("no panic holds it").len();
        write!(f, "WatchedKeys {{ {:?}, phases of 2^{}, {used} used }}", self.keys, self.phase_bits)
    }
}

impl WatchedKeys {
    /// The keys of the job that has this byte 32 times for its key, with phases of 2^`phase_bits` packets.
    pub fn new(byte: u8, hides: bool, phase_bits: u32) -> WatchedKeys {
        let keys = Keyring::new(JobKey::new(&[byte; 32]), hides);
        WatchedKeys { keys, phase_bits, used: Used::default(), plains: None }
    }

    /// The same keys, which tell what their packets were.
    #[must_use]
    pub fn telling(self, plains: Option<&Plains>) -> WatchedKeys {
        WatchedKeys { plains: plains.cloned(), ..self }
    }

    /// Packets sealed so far.
    pub fn packets(&self) -> usize {
        self.used.lock().expect("no panic holds it").len()
    }

    /// Secrets used so far: at least one for each direction of a session, and one for each further phase.
    pub fn secrets(&self) -> usize {
        let used = self.used.lock().expect("no panic holds it");
        used.iter().map(|(secret, _)| secret).collect::<HashSet<_>>().len()
    }
}

impl Keys for WatchedKeys {
    fn id(&self) -> [u8; 8] {
        self.keys.id()
    }

    fn hides(&self) -> bool {
        self.keys.hides()
    }

    fn phase_bits(&self) -> u32 {
        self.phase_bits
    }

    fn prove(&self, loose: &Loose<'_>) -> [u8; PROOF_BYTES] {
        self.keys.prove(loose)
    }

    fn verify(&self, loose: &Loose<'_>, proof: &[u8]) -> bool {
        self.keys.verify(loose, proof)
    }

    fn session(&self, ours: &[u8], theirs: &[u8]) -> (Secret, Secret) {
        self.keys.session(ours, theirs)
    }

    fn next(&self, secret: &Secret) -> Secret {
        self.keys.next(secret)
    }

    fn renewed(&self, secret: &Secret) -> Secret {
        self.keys.renewed(secret)
    }

    fn cipher(&self, secret: &Secret) -> Box<dyn Cipher> {
        let (cipher, used) = (self.keys.cipher(secret), Arc::clone(&self.used));
        Box::new(WatchedCipher { cipher, secret: secret.0, used, plains: self.plains.clone() })
    }
}

struct WatchedCipher {
    cipher: Box<dyn Cipher>,
    secret: [u8; 32],
    used: Used,
    plains: Option<Plains>,
}

impl WatchedCipher {
    fn note(&self, counter: u64) {
        let fresh = self.used.lock().expect("no panic holds it").insert((self.secret, counter));
        assert!(fresh, "counter {counter} serves for two packets");
    }
}

impl Cipher for WatchedCipher {
    fn prove(&self, counter: u64, head: &[u8], rest: &[u8]) -> [u8; PROOF_BYTES] {
        self.note(counter);
        let proof = self.cipher.prove(counter, head, rest);
        if let Some(plains) = &self.plains {
            plains.note([head, rest], rest, counter, &proof);
        }
        proof
    }

    fn verify(&self, counter: u64, head: &[u8], rest: &[u8], proof: &[u8]) -> bool {
        self.cipher.verify(counter, head, rest, proof)
    }

    fn hide(&self, counter: u64, head: &[u8], rest: &mut [u8]) -> [u8; PROOF_BYTES] {
        self.note(counter);
        let plain = self.plains.as_ref().map(|plains| (plains, rest.to_vec()));
        let proof = self.cipher.hide(counter, head, rest);
        if let Some((plains, plain)) = plain {
            plains.note([head, rest], &plain, counter, &proof);
        }
        proof
    }

    fn open(&self, counter: u64, head: &[u8], hidden: &[u8], proof: &[u8], out: &mut [u8]) -> bool {
        self.cipher.open(counter, head, hidden, proof, out)
    }
}
