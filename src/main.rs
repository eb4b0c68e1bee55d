//! The `anabranch` binary: hands its arguments to the cli room and returns its exit code.
fn main() -> std::process::ExitCode {
    cli::main()
}
