//! The operating system → what it says of this process.

/// Bytes of memory that are ours and in RAM; `None` where the system does not say.
pub fn resident_bytes() -> Option<u64> {
    resident_of(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn resident_of(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_counts_in_kib() {
        assert_eq!(
            resident_of("Name:\tx\nVmRSS:\t   12 kB\nThreads:\t4\n"),
            Some(12_288)
        );
        assert_eq!(resident_of("Name:\tx\n"), None);
    }
}
