using System.Diagnostics;
using System.Globalization;
using Grpc.Net.Client;
using KvCluster.Tests.Grpc.Proto;

namespace KvCluster.Tests.Grpc.Interop;

/// <summary>A process that serves the echo service with @grpc/grpc-js, and our channel to it.</summary>
public sealed class GrpcJsServer : IAsyncLifetime
{
    private Process? _process;
    private GrpcChannel? _channel;

    internal GrpcChannel Channel => _channel!;

    internal Echo.EchoClient Client => new(Channel.Calls());

    internal string Address { get; private set; } = "";

    public async Task InitializeAsync()
    {
        if (NodeScripts.SkipReason is not null)
            return;
        _process = NodeScripts.Start("server.js");
        var port = await _process.StandardOutput.ReadLineAsync()
            ?? throw new InvalidOperationException($"server.js did not start: {await _process.StandardError.ReadToEndAsync()}");
        Address = $"http://127.0.0.1:{int.Parse(port, CultureInfo.InvariantCulture)}";
        _channel = GrpcChannel.ForAddress(Address);
    }

    public async Task DisposeAsync()
    {
        if (_process is null)
            return;
        Channel.Dispose();
        _process.StandardInput.Close();
        await _process.WaitForExitAsync();
        _process.Dispose();
    }
}
