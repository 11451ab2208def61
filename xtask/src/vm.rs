//! `cargo xtask vm`: a command for each device of the virtual machine, or a script in it.

use crate::VmArgs;
use anyhow::{Context, Result, bail};
use erd_e2e::layout::Layout;
use erd_e2e::setup;
use erd_e2e::vm::{self, Machine};
use std::fs;
use std::time::Duration;

/// Runs the commands or the script. `PROVIDERS` in their environment is the path of a built provider.
///
/// # Errors
/// A machine that does not start, a script that fails to end in time.
pub fn run(layout: &Layout, args: &VmArgs) -> Result<bool> {
    setup::packages(layout, vm::PACKAGES)?;
    let machine = Machine::prepare(layout)?;
    let script = match (&args.script, &args.left, &args.right) {
        (Some(path), ..) => {
            fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?
        }
        (None, Some(left), Some(right)) => pair(left, right),
        _ => bail!("give --script, or --left and --right"),
    };
    let script = format!("export PROVIDERS={}\n{script}", layout.provider_dir().display());
    let ran = machine.run(&script, Duration::from_secs(args.limit), &layout.logs.join("vm.log"))?;
    print!("{}", ran.output);
    println!("[exit status {}; files in {}]", ran.status, layout.short(&ran.out).display());
    Ok(ran.status == 0)
}

/// A script that runs one command for each device, the second once the first had time to begin.
fn pair(left: &str, right: &str) -> String {
    format!(
        "( {left}\n) > $OUT/left 2>&1 &\nleft=$!\nsleep 2\n( {right}\n) > $OUT/right 2>&1\nright=$?\n\
         wait $left; left=$?\nfor side in left right; do echo \"== $side\"; cat $OUT/$side; done\n\
         echo \"== left ended with $left, right with $right\"\n[ $left = 0 ] && [ $right = 0 ]\n"
    )
}
