using System.Diagnostics;

namespace KvCluster.Benchmarks.Grpc;

/// <summary>The benchmark program started again as one side of a measurement. It ends with this object.</summary>
internal sealed class PeerProcess : IDisposable
{
    private readonly string _side;
    private readonly Process _process;

    public PeerProcess(string side, string argument)
    {
        _side = side;
        var program = Environment.ProcessPath!;
        string[] self = Path.GetFileNameWithoutExtension(program) == "dotnet" ? [typeof(PeerProcess).Assembly.Location] : [];
        _process = Process.Start(new ProcessStartInfo(program, [.. self, GrpcPeer.Command, side, argument])
        {
            RedirectStandardInput = true,
            RedirectStandardOutput = true,
            // Idle threads must not spin, because that would count as the cost of calls.
            Environment = { ["DOTNET_ThreadPool_UnfairSemaphoreSpinLimit"] = "0" },
        })!;
    }

    public int Id => _process.Id;

    /// <summary>Writes a line to its input.</summary>
    public Task WriteLineAsync(string line) => _process.StandardInput.WriteLineAsync(line);

    /// <summary>The next line of its output.</summary>
    /// <exception cref="InvalidOperationException">It ended.</exception>
    public async Task<string> ReadLineAsync(CancellationToken cancellation) => await _process.StandardOutput.ReadLineAsync(cancellation)
        ?? throw new InvalidOperationException($"The {_side} process ended without a result; what it wrote to its error output says why.");

    public void Dispose()
    {
        _process.Kill();
        _process.Dispose();
    }
}
