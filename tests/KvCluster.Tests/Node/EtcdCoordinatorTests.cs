using System.Diagnostics;
using Etcdserverpb;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Node.Coordination.Etcd;
using KvCluster.Processes;
using KvCluster.Replication.Protocol;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>The client for etcd's API against both of its servers, and the real etcdctl against the embedded one.</summary>
public sealed class EtcdCoordinatorTests
{
    private static readonly CancellationToken Never = CancellationToken.None;

    [Fact]
    public async Task Contract_AgainstTheEmbeddedServer_Holds()
    {
        await using var server = await EmbeddedServer.StartAsync();
        await using var coordinator = Connect(server.Address);
        await CoordinatorContract.CheckAsync(coordinator);
    }

    [Fact]
    public async Task Watch_AfterTheServerReopened_ReportsMissingChanges()
    {
        await using var server = await EmbeddedServer.StartAsync();
        await using var coordinator = Connect(server.Address);
        var revision = (await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never)).Revision;
        await server.RestartAsync();
        // The connection to the former server may be found broken only now.
        await coordinator.GetUntilAnsweredAsync("/k", Never);
        await Assert.ThrowsAsync<CoordinatorCompactedException>(
            async () => await coordinator.WatchAsync("/", revision, Never).GetAsyncEnumerator().MoveNextAsync());
    }

    [Fact]
    public async Task Watch_WhenTheServerGoesAway_Ends()
    {
        var server = await EmbeddedServer.StartAsync();
        await using var coordinator = Connect(server.Address);
        var revision = (await coordinator.ListAsync("/", Never)).Revision;
        var watching = coordinator.WatchAsync("/", revision + 1, Never).GetAsyncEnumerator().MoveNextAsync().AsTask();
        await server.DisposeAsync();
        await Assert.ThrowsAsync<CoordinatorUnavailableException>(() => watching);
    }

    /// <summary>
    /// With http:// for an etcd with TLS, or without the client certificate that it requires, the log had only what the connection's end was called.
    /// </summary>
    [Theory]
    [InlineData("http://a:2379", null, "The connection was lost: the server closed it immediately", "https://")]
    [InlineData("https://a:2379", null, "The connection was lost: The response ended prematurely.", "coordinator-cert, coordinator-key")]
    [InlineData("https://a:2379", "client.crt", "The connection was lost: The response ended prematurely.", "accept the client certificate")]
    [InlineData("http://a:2379", null, "No connection: Connection refused", "")]
    public void Question_OfAConnectionThatEndsBeforeTheAnswer_IsWhetherTlsIsRight(string endpoint, string? certificate, string detail, string question)
    {
        var asked = EtcdCoordinator.Question(new EtcdOptions { Endpoints = [endpoint], CertificateFile = certificate }, detail);
        Assert.Contains(question, asked, StringComparison.Ordinal);
        Assert.Equal(question.Length == 0, asked.Length == 0);
    }

    [Fact]
    public async Task CompareAndSet_WithoutAServer_IsUnknown()
    {
        await using var coordinator = Connect("http://127.0.0.1:1");
        Assert.Equal(SetOutcome.Unknown, (await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never)).Outcome);
        await Assert.ThrowsAsync<CoordinatorUnavailableException>(() => coordinator.GetAsync("/k", Never));
    }

    /// <summary>The first attempt was applied but its answer was lost. The repeated compare fails, and the value found is the client's own.</summary>
    [Fact]
    public async Task SetUntilSettled_AnswerLost_FindsItsOwnChange()
    {
        await using var server = await EmbeddedServer.StartAsync();
        await using var coordinator = new CoordinatorThatLosesAnswers(Connect(server.Address)) { LostAnswers = 1 };
        var set = await coordinator.SetUntilSettledAsync("/k", 0, "mine", 0, Never);
        Assert.Equal(SetOutcome.Won, set.Outcome);
        Assert.Equal(2, coordinator.Attempts);
        Assert.Equal(set.Revision, (await coordinator.GetAsync("/k", Never)).ModRevision);
    }

    [Fact]
    public async Task SetUntilSettled_AnswerOfAFailedCompareLost_IsLost()
    {
        await using var server = await EmbeddedServer.StartAsync();
        await using var coordinator = new CoordinatorThatLosesAnswers(Connect(server.Address));
        await coordinator.CompareAndSetAsync("/k", 0, "theirs", 0, Never);
        coordinator.LostAnswers = 1;
        Assert.Equal(SetOutcome.Lost, (await coordinator.SetUntilSettledAsync("/k", 0, "mine", 0, Never)).Outcome);
        Assert.Equal("theirs", (await coordinator.GetAsync("/k", Never)).Value);
    }

    [Fact]
    public void HeaderCheck_RevisionLowerThanBeforeTheRequest_Alarms()
    {
        var check = new EtcdRestoreCheck(NullLogger.Instance);
        check.Check(new ResponseHeader { ClusterId = 7, Revision = 10 }, new SeenStore(0, 0));
        // An answer overtaken by a later one must not alarm.
        check.Check(new ResponseHeader { ClusterId = 7, Revision = 9 }, new SeenStore(0, 9));
        Assert.Throws<CoordinatorAlarmException>(() => check.Check(new ResponseHeader { ClusterId = 7, Revision = 9 }, new SeenStore(0, 10)));
        Assert.Throws<CoordinatorAlarmException>(check.ThrowIfAlarmed);
    }

    [Fact]
    public void HeaderCheck_DifferentClusterId_Alarms()
    {
        var check = new EtcdRestoreCheck(NullLogger.Instance);
        check.Check(new ResponseHeader { ClusterId = 7, Revision = 10 }, new SeenStore(0, 0));
        Assert.Throws<CoordinatorAlarmException>(() => check.Check(new ResponseHeader { ClusterId = 8, Revision = 11 }, new SeenStore(0, 10)));
    }

    /// <summary>The answer came from a server that was put in the place of the first. It was applied there, but not in the store that was asked.</summary>
    [Fact]
    public async Task CompareAndSet_AnsweredByAReplacedServer_IsUnknown()
    {
        await using var server = await EmbeddedServer.StartAsync();
        await using var coordinator = Connect(server.Address);
        await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never);
        await server.RestartAsync(withAnotherFolder: true);
        Assert.Equal(SetOutcome.Unknown, (await coordinator.CompareAndSetAsync("/other", 0, "1", 0, Never)).Outcome);
        // The client detects the other server now at the latest, and sends nothing from then on.
        await Assert.ThrowsAsync<CoordinatorAlarmException>(() => coordinator.GetUntilAnsweredAsync("/k", Never));
        await Assert.ThrowsAsync<CoordinatorAlarmException>(() => coordinator.CompareAndSetAsync("/other", 0, "2", 0, Never));
    }

    [Fact]
    public async Task CompareAndSet_AfterTheServerWasReplaced_ChangesNothing()
    {
        await using var server = await EmbeddedServer.StartAsync();
        await using var coordinator = Connect(server.Address);
        await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never);
        await server.RestartAsync(withAnotherFolder: true);
        // The connection to the former server may be found broken only now.
        await Assert.ThrowsAsync<CoordinatorAlarmException>(() => coordinator.GetUntilAnsweredAsync("/k", Never));
        await Assert.ThrowsAsync<CoordinatorAlarmException>(() => coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never));
        await using var other = Connect(server.Address);
        Assert.Null((await other.GetAsync("/k", Never)).Value);
    }

    /// <summary>Answers to requests that were sent before must not raise the alarm again (F53).</summary>
    [Fact]
    public void HeaderCheck_ThatContinuesWithAnotherStore_IgnoresAnswersToWhatWasAskedBefore()
    {
        var check = new EtcdRestoreCheck(NullLogger.Instance);
        check.Check(new ResponseHeader { ClusterId = 7, Revision = 10 }, check.Seen);
        var before = check.Seen;
        Assert.Throws<CoordinatorAlarmException>(() => check.Check(new ResponseHeader { ClusterId = 8, Revision = 2 }, before));
        var found = new EtcdRestoreCheck(NullLogger.Instance);
        found.Check(new ResponseHeader { ClusterId = 8, Revision = 3 }, found.Seen);
        check.ContinueAs(found);
        check.ThrowIfAlarmed();
        Assert.Throws<CoordinatorUnavailableException>(() => check.Check(new ResponseHeader { ClusterId = 8, Revision = 2 }, before));
        Assert.Throws<CoordinatorUnavailableException>(() => check.Check(new ResponseHeader { ClusterId = 7, Revision = 11 }, before));
        check.Check(new ResponseHeader { ClusterId = 8, Revision = 4 }, check.Seen);
        // The old one is found as before.
        Assert.Throws<CoordinatorAlarmException>(() => check.Check(new ResponseHeader { ClusterId = 7, Revision = 12 }, check.Seen));
    }

    [Fact]
    public async Task ContinueAs_AfterTheServerWasReplaced_EndsTheAlarm()
    {
        await using var server = await EmbeddedServer.StartAsync();
        await using var coordinator = Connect(server.Address);
        await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never);
        await server.RestartAsync(withAnotherFolder: true);
        await Assert.ThrowsAsync<CoordinatorAlarmException>(() => coordinator.GetUntilAnsweredAsync("/k", Never));
        await using (var anew = coordinator.Anew())
        {
            Assert.Null((await anew.GetUntilAnsweredAsync("/k", Never)).Value);
            coordinator.ContinueAs(anew);
        }

        Assert.Equal(SetOutcome.Won, (await coordinator.CompareAndSetAsync("/k", 0, "2", 0, Never)).Outcome);
    }

    [ToolFact("etcdctl")]
    public async Task Etcdctl_AgainstTheEmbeddedServer_ReadsPutsAndWatches()
    {
        await using var server = await EmbeddedServer.StartAsync();
        await using var coordinator = Connect(server.Address);
        await coordinator.CompareAndSetAsync("/kvcluster/local/shards/0", 0, "{\"shard\":0}", 0, Never);
        Assert.Equal("OK", await EtcdctlAsync(server.Address, "put", "/kvcluster/local/shards/1", "{}"));
        Assert.Equal(
            "/kvcluster/local/shards/0\n{\"shard\":0}\n/kvcluster/local/shards/1\n{}", await EtcdctlAsync(server.Address, "get", "--prefix", "/kvcluster/"));
        Assert.Equal(
            "PUT\n/kvcluster/local/shards/1\n{}", string.Join('\n', await WatchOnceAsync(server.Address, "/kvcluster/local/shards/1", fromRevision: 3)));
        Assert.Equal("1", await EtcdctlAsync(server.Address, "del", "/kvcluster/local/shards/1"));
        var lease = await EtcdctlAsync(server.Address, "lease", "grant", "60");
        Assert.StartsWith("lease ", lease, StringComparison.Ordinal);
        Assert.Contains(server.Address["http://".Length..], await EtcdctlAsync(server.Address, "endpoint", "status"), StringComparison.Ordinal);
    }

    private static EtcdCoordinator Connect(string address) =>
        new(new EtcdOptions { Endpoints = [address], RequestTime = Eventually.Limit }, NullLogger.Instance);

    private static Process StartEtcdctl(string address, params string[] arguments) => Process.Start(
        new ProcessStartInfo(Tools.Find("etcdctl")!, ["--endpoints", address, .. arguments]) { RedirectStandardOutput = true })!;

    private static async Task<string> EtcdctlAsync(string address, params string[] arguments)
    {
        using var process = StartEtcdctl(address, arguments);
        var output = await process.StandardOutput.ReadToEndAsync();
        await process.WaitForExitAsync();
        Assert.Equal(0, process.ExitCode);
        return output.Trim();
    }

    private static async Task<List<string>> WatchOnceAsync(string address, string key, long fromRevision)
    {
        using var process = StartEtcdctl(address, "watch", key, "--rev", fromRevision.ToString(System.Globalization.CultureInfo.InvariantCulture));
        var lines = new List<string>();
        while (lines.Count < 3 && await process.StandardOutput.ReadLineAsync().WaitAsync(Eventually.Limit) is { } line)
            lines.Add(line);
        process.Kill();
        await process.WaitForExitAsync();
        return lines;
    }

    /// <summary>Applies changes and reports the first ones as unknown.</summary>
    private sealed class CoordinatorThatLosesAnswers(ICoordinator inner) : PassingCoordinator(inner)
    {
        public int LostAnswers { get; set; }

        public int Attempts { get; private set; }

        public override async Task<CompareAndSetResult> CompareAndSetAsync(
            string key, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken)
        {
            Attempts++;
            var result = await base.CompareAndSetAsync(key, expectedRevision, value, lease, guardedBy, cancellationToken);
            return LostAnswers-- > 0 ? new CompareAndSetResult(SetOutcome.Unknown, 0) : result;
        }

        public override ValueTask DisposeAsync() => Inner.DisposeAsync();
    }

    /// <summary>An embedded coordinator with its server, which can be restarted on the same port.</summary>
    private sealed class EmbeddedServer : IAsyncDisposable
    {
        private readonly TemporaryDirectory _directory = new();
        private EmbeddedCoordinator _coordinator = null!;
        private CoordinatorServer _server = null!;
        private int _folder;

        public string Address { get; private set; } = "http://127.0.0.1:0";

        public static async Task<EmbeddedServer> StartAsync()
        {
            var server = new EmbeddedServer();
            await server.OpenAsync();
            return server;
        }

        public async Task RestartAsync(bool withAnotherFolder = false)
        {
            await CloseAsync();
            if (withAnotherFolder)
                _folder++;
            await OpenAsync();
        }

        public async ValueTask DisposeAsync()
        {
            await CloseAsync();
            _directory.Dispose();
        }

        private async Task OpenAsync()
        {
            _coordinator = EmbeddedCoordinator.Open(Path.Combine(_directory.Path, $"{_folder}"), TimeProvider.System);
            _server = await CoordinatorServer.StartAsync(_coordinator, Address, NullLoggerFactory.Instance, Never);
            Address = _server.Address;
        }

        private async Task CloseAsync()
        {
            await _server.DisposeAsync();
            await _coordinator.DisposeAsync();
        }
    }
}
