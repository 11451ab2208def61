//! The output of `erd info` for people.

use super::{Granted, Info};
use crate::info::choice::Place;
use crate::text;
use std::fmt::Write as _;

/// All of it; settings with their defaults only if `all`.
pub fn text(info: &Info, all: bool) -> String {
    let Info { version, host, kernel, processors, .. } = info;
    let mut out = format!("erd {version} on {host}: Linux {kernel}, {processors} processors\n");
    // Writing to a string does not fail.
    let _ = choice(&mut out, info);
    let _ = offered(&mut out, info);
    let _ = devices(&mut out, info);
    if let Some(granted) = &info.granted {
        let _ = kernel_grants(&mut out, granted);
    }
    let _ = settings(&mut out, info, all);
    out
}

fn carrier(place: &Place) -> String {
    place.device.as_ref().map_or("UDP".to_owned(), |device| format!("verbs on {device}"))
}

fn choice(out: &mut String, info: &Info) -> std::fmt::Result {
    match &info.choice.place {
        Some(place) => {
            writeln!(out, "\nA program that asks for nothing special gets")?;
            writeln!(
                out,
                "  {} {}, {}, controller {}, {} path{}, datagrams of {} bytes",
                place.interface,
                place.address,
                carrier(place),
                place.controller,
                place.paths,
                if place.paths == 1 { "" } else { "s" },
                place.datagram_bytes,
            )?;
        }
        None => writeln!(out, "\nA program gets nothing of erd (see also: erd doctor)")?,
    }
    for (part, why) in &info.choice.reasons {
        writeln!(out, "    {part:<11} {why}")?;
    }
    Ok(())
}

fn offered(out: &mut String, info: &Info) -> std::fmt::Result {
    if !info.offered.is_empty() {
        let mut table = text::table([
            "interface",
            "address",
            "network",
            "carrier",
            "MTU",
            "datagram",
            "speed",
            "controller",
            "paths",
        ]);
        for place in &info.offered {
            table.add_row([
                place.interface.clone(),
                place.address.to_string(),
                place.network.clone(),
                carrier(place),
                place.mtu_bytes.to_string(),
                place.datagram_bytes.to_string(),
                place.speed_mbps.map_or("-".to_owned(), |mbps| text::speed(mbps.into())),
                place.controller.to_owned(),
                place.paths.to_string(),
            ]);
        }
        writeln!(out, "\nOffered to programs, in this order\n{table}")?;
    }
    if !info.left_out.is_empty() {
        writeln!(out, "\nNot offered")?;
    }
    for left in &info.left_out {
        writeln!(out, "  {} {}: {}", left.interface, left.address, left.reason)?;
    }
    Ok(())
}

fn devices(out: &mut String, info: &Info) -> std::fmt::Result {
    writeln!(out, "\nRDMA devices")?;
    if let Some(why) = &info.no_devices {
        writeln!(out, "  {why}")?;
    } else if info.devices.is_empty() {
        writeln!(out, "  none has an active port")?;
    }
    for device in &info.devices {
        writeln!(
            out,
            "  {}: {}, {}, datagrams of {} bytes, firmware {}",
            device.name,
            device.link,
            text::speed(device.speed_mbps.into()),
            device.datagram_bytes,
            if device.firmware.is_empty() { "unknown" } else { &device.firmware },
        )?;
        for gid in &device.gids {
            let used = if gid.used { "  <- used" } else { "" };
            writeln!(out, "    GID {:<3} {:<10} {}{used}", gid.index, gid.kind, gid.gid)?;
        }
    }
    Ok(())
}

fn kernel_grants(out: &mut String, granted: &Granted) -> std::fmt::Result {
    writeln!(out, "\nWhat the kernel grants the UDP port on {}", granted.address)?;
    let buffer = |got: usize, asked: usize| {
        let size = text::bytes(got as u64);
        if got >= asked {
            size
        } else {
            format!("{size} of {} asked for", text::bytes(asked as u64))
        }
    };
    let yes = |has: bool| if has { "yes" } else { "no" };
    let gso = match granted.gso_segments {
        0 | 1 => "no".to_owned(),
        segments => format!("yes, {segments} datagrams a call"),
    };
    let ecn = match (granted.ecn_write, granted.ecn_read) {
        (true, true) => "written and read",
        (true, false) => "written only",
        (false, true) => "read only",
        (false, false) => "no",
    };
    for (what, got) in [
        ("receive buffer", buffer(granted.recv_buffer_bytes, granted.recv_buffer_asked_bytes)),
        ("send buffer", buffer(granted.send_buffer_bytes, granted.send_buffer_asked_bytes)),
        ("bursts sent in one piece (GSO)", gso),
        ("bursts received in one piece (GRO)", yes(granted.gro).to_owned()),
        ("congestion marks (ECN)", ecn.to_owned()),
        ("receive time stamps", yes(granted.timestamps).to_owned()),
        ("drops of a full buffer counted", yes(granted.drop_counts).to_owned()),
        ("packets never fragmented", yes(granted.dont_fragment).to_owned()),
    ] {
        writeln!(out, "  {what:<35} {got}")?;
    }
    Ok(())
}

fn settings(out: &mut String, info: &Info, all: bool) -> std::fmt::Result {
    writeln!(out, "\nSettings of this environment")?;
    let shown = info.settings.iter().filter(|row| row.changed || all);
    for row in shown.clone() {
        let value = if row.value.is_empty() { "empty" } else { &row.value };
        let note = match &row.problem {
            Some(problem) => format!("  NOT VALID, {problem}"),
            None if all && row.changed => "  (changed)".to_owned(),
            None => String::new(),
        };
        writeln!(out, "  {:<26} {}{note}", row.variable, text::harmless(value))?;
    }
    let others = info.settings.len() - shown.count();
    if others > 0 {
        writeln!(out, "  {others} have their defaults: erd info --all lists them")?;
    }
    Ok(())
}
