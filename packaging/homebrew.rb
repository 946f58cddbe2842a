class Llmgw < Formula
  desc "Gateway for model inference: any provider, failover, keys, quotas, cost, console"
  homepage "@URL@"
  version "@VERSION@"
  license "Apache-2.0"

  on_linux do
    on_intel do
      url "@URL@/llmgw_v@VERSION@_linux_amd64.tar.gz"
      sha256 "@SHA256_LINUX_AMD64@"
    end
    on_arm do
      url "@URL@/llmgw_v@VERSION@_linux_arm64.tar.gz"
      sha256 "@SHA256_LINUX_ARM64@"
    end
  end
  on_macos do
    on_intel do
      url "@URL@/llmgw_v@VERSION@_darwin_amd64.tar.gz"
      sha256 "@SHA256_DARWIN_AMD64@"
    end
    on_arm do
      url "@URL@/llmgw_v@VERSION@_darwin_arm64.tar.gz"
      sha256 "@SHA256_DARWIN_ARM64@"
    end
  end

  def install
    bin.install "llmgw"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/llmgw.bash" => "llmgw"
    zsh_completion.install "completions/llmgw.zsh" => "_llmgw"
    fish_completion.install "completions/llmgw.fish"
  end

  service do
    run [opt_bin/"llmgw", "quickstart"]
    keep_alive true
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/llmgw version")
  end
end
