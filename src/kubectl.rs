//! The kubectl plugin binary: hands its arguments to the plugin room and returns its exit code.
fn main() -> std::process::ExitCode {
    plugin::main()
}
