//! The `anabranch-agent` binary: `anabranch agent` alone, a quarter of the size and of the memory.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    program::agent::main()
}
