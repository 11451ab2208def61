//! What strangers without any secret tried (protocol.md §8), and do not get any more.

mod intruder;

#[test]
fn one_address_gets_its_share_of_the_table_alone() {
    intruder::takes_all_places();
}

#[test]
fn who_is_not_known_does_not_get_in() {
    intruder::sends_unbidden();
}

#[test]
fn who_does_not_answer_keeps_no_place() {
    intruder::fills_the_table_for_good();
}

#[test]
fn who_only_announces_goes_first() {
    intruder::hoarders_go_first();
}

#[test]
fn a_probe_tells_nothing_that_could_be_used() {
    intruder::takes_a_dead_peers_port();
}

#[test]
fn a_welcome_is_repeated_until_it_came() {
    intruder::asks_for_another_welcome();
}

#[test]
fn few_answers_go_to_names_that_did_not_ask() {
    intruder::gives_anothers_name();
}

#[test]
fn a_guess_of_a_session_id_learns_nothing() {
    intruder::guesses_session_ids();
}

#[test]
fn a_stale_acknowledgement_raises_no_limit() {
    intruder::raises_limits_by_a_stale_acknowledgement();
}

#[test]
fn a_packet_is_taken_once() {
    intruder::repeats_a_packet();
}

#[test]
fn an_answer_that_is_dropped_tells_nothing_of_paths() {
    intruder::answers_a_probe_with_nonsense();
}

#[test]
fn challenges_and_welcomes_of_wrong_ids_change_nothing() {
    intruder::blind::answers_hellos_it_did_not_see();
}

#[test]
fn resets_and_confirmations_of_wrong_ids_end_nothing() {
    intruder::blind::ends_sessions_it_does_not_know();
}

#[test]
fn packets_of_unknown_sessions_are_dropped_and_not_answered() {
    intruder::blind::speaks_in_sessions_it_does_not_know();
}

#[test]
fn foreign_and_expired_cookies_open_nothing() {
    intruder::blind::shows_cookies_that_are_not_its_own();
}

#[test]
fn icmp_ends_no_session_whose_peer_answers() {
    intruder::blind::says_by_icmp_that_nobody_listens();
}

#[test]
fn the_information_path_takes_acknowledgements_alone() {
    intruder::blind::sends_other_kinds_as_frames();
}

#[test]
fn a_flood_of_hellos_makes_no_peer() {
    intruder::blind::floods_with_hellos();
}
