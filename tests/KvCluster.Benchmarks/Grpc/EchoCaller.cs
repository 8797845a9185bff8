using System.Globalization;
using System.Text.Json;

namespace KvCluster.Benchmarks.Grpc;

/// <summary>A client in a separate process, and its measurements.</summary>
internal sealed class EchoCaller(EchoPlan plan) : IDisposable
{
    private readonly PeerProcess _peer = new("client", JsonSerializer.Serialize(plan));

    /// <summary>Runs its callers for this long.</summary>
    public async Task<EchoResult> RunWindowAsync(int milliseconds, CancellationToken cancellation)
    {
        await _peer.WriteLineAsync(milliseconds.ToString(CultureInfo.InvariantCulture));
        return JsonSerializer.Deserialize<EchoResult>(await _peer.ReadLineAsync(cancellation))!;
    }

    public void Dispose() => _peer.Dispose();
}
