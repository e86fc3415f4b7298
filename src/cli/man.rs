//! The man page, from the same definitions as the parser: one page for the program, with a section for each command.
#![forbid(unsafe_code)]

use crate::cli::help;

/// The man page, in roff.
///
/// # Errors
/// None in practice: it is written to memory.
pub fn man() -> std::io::Result<Vec<u8>> {
    let mut command = help::complete();
    command.build();
    let top = clap_mangen::Man::new(command.clone());
    let mut page = Vec::new();
    top.render_title(&mut page)?;
    top.render_name_section(&mut page)?;
    top.render_synopsis_section(&mut page)?;
    top.render_description_section(&mut page)?;
    examples(&command, ".SH", &mut page);
    top.render_options_section(&mut page)?;
    top.render_extra_section(&mut page)?;
    let listed = |it: &&clap::Command| it.get_name() != "help" && !it.is_hide_set();
    for subcommand in command.get_subcommands().filter(listed) {
        let heading = format!("checkrun {}", subcommand.get_name());
        let part = clap_mangen::Man::new(subcommand.clone());
        page.extend_from_slice(format!(".SH \"{}\"\n", heading.to_uppercase()).as_bytes());
        let mut body = Vec::new();
        part.render_synopsis_section(&mut body)?;
        part.render_description_section(&mut body)?;
        examples(subcommand, ".SS", &mut body);
        part.render_options_section(&mut body)?;
        // Below a section heading these are subsections.
        page.extend_from_slice(String::from_utf8_lossy(&body).replace(".SH ", ".SS ").as_bytes());
    }
    page.extend_from_slice(FILES.as_bytes());
    Ok(page)
}

/// Where things are kept, and where more is to be read.
const FILES: &str = r"
.SH FILES
.TP
$CHECKRUN_CACHE_DIR, else $XDG_CACHE_HOME/checkrun, else ~/.cache/checkrun
Records, whole outputs, trees, prepared packages.
.TP
$XDG_STATE_HOME/checkrun/secret, else ~/.local/state/checkrun/secret
What records are sealed with.
.TP
$XDG_CONFIG_HOME/checkrun, else ~/.config/checkrun
The user's own policies, in policies/, and runners, in runners/.
.TP
\&.checkrun.toml
At a tree's root: what makes the policy stricter for it. It is part of the tree.
.SH SEE ALSO
.BR git (1),
.BR user_namespaces (7),
.BR landlock (7)
";

/// The examples, which clap's own page leaves out, as they stand.
fn examples(command: &clap::Command, heading: &str, page: &mut Vec<u8>) {
    let Some(text) = command.get_before_help().map(ToString::to_string) else { return };
    let lines = text.lines().filter_map(|line| line.strip_prefix("  "));
    let lines: Vec<String> = lines.map(|line| line.replace('\\', "\\e").replace('-', "\\-")).collect();
    // A quote at a line's start would be taken for a request; `\\&` is nothing in its place.
    let body: String = lines.iter().map(|line| format!("\\&{line}\n")).collect();
    page.extend_from_slice(format!("{heading} EXAMPLES\n.nf\n{body}.fi\n").as_bytes());
}
