# A formula for Homebrew, on macOS or Linux. scripts/release fills in the version, the checksum of the source archive,
# and the address of the repository, where the archive is one of the release's files.
class BloomeryRedis < Formula
  desc "Bloom and cuckoo filters for Redis and Valkey"
  homepage "@REPOSITORY@"
  url "@REPOSITORY@/releases/download/v@VERSION@/bloomery-@VERSION@.tar.gz"
  sha256 "@SHA256@"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on "rust" => :build
  uses_from_macos "llvm" => :build # libclang, with which bindgen reads the header of the module API

  def install
    # Two builds: in a single one, both packages would get the features of both, and so the program would use the
    # server's allocator.
    system "cargo", "build", "--release", "--locked", "--package", "bloomery-cli"
    system "cargo", "build", "--release", "--locked", "--package", "bloomery-module"
    bin.install "target/release/bloomery"
    (lib/"bloomery").install "target/release/#{shared_library("libbloomery")}"
    system bin/"bloomery", "man", buildpath
    man1.install Dir["*.1"]
    generate_completions_from_executable(bin/"bloomery", "completions")
    doc.install "docs", "redis.conf.example"
  end

  def caveats
    <<~TEXT
      To load the module, add this line to redis.conf or valkey.conf, and restart the server:
        loadmodule #{opt_lib}/bloomery/#{shared_library("libbloomery")}
    TEXT
  end

  test do
    assert_match "MiB", shell_output("#{bin}/bloomery plan -n 10M -e 1%")
  end
end
