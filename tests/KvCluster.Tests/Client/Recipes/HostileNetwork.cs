using KvCluster.Client;
using KvCluster.Client.Runtime;
using KvCluster.Client.Transport;
using KvCluster.Tls;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Client.Recipes;

/// <summary>
/// The network of a client whose calls are delayed, or served without their answers arriving, as a test asks. Calls of several threads pass through it.
/// </summary>
internal sealed class HostileNetwork : INodeConnector
{
    private readonly GrpcConnector _inner = new(new TlsConnector(files: null), 1_000, NullLogger.Instance);

    /// <summary>Waited for before a call is sent.</summary>
    public Func<Method, Task> Before { get; set; } = static _ => Task.CompletedTask;

    /// <summary>Whether the answer to a call is lost, after the node has given it.</summary>
    public Func<Method, bool> LosesAnswer { get; set; } = static _ => false;

    public KvClient Client(string endpoint, bool exactlyOnce = true) => new(
        new KvClientOptions { Endpoints = [endpoint], ExactlyOnce = exactlyOnce, Timeout = Eventually.Limit }, this, ClientRuntime.Machine);

    public INodeConnection Connect(string address) => new Connection(this, _inner.Connect(address));

    public IAsyncEnumerable<ShardMap> WatchMap(string address, CancellationToken cancellationToken) => _inner.WatchMap(address, cancellationToken);

    private sealed class Connection(HostileNetwork network, INodeConnection inner) : INodeConnection
    {
        public bool IsPaused => inner.IsPaused;

        public bool IsSlow => inner.IsSlow;

        public string Failure => inner.Failure;

        public async ValueTask<CallAnswer> CallAsync(PendingCall call, CancellationToken cancellationToken)
        {
            // The call is used again for another one when it is answered.
            var method = call.Method;
            await network.Before(method);
            var answer = await inner.CallAsync(call, cancellationToken);
            return answer.Reply is not null && network.LosesAnswer(method)
                ? new CallAnswer(null, Sent: true, "the test has lost the answer", DeadlinePassed: false)
                : answer;
        }

        public ValueTask DisposeAsync() => inner.DisposeAsync();
    }
}
