using Etcdserverpb;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Etcd;
using KvCluster.Processes;
using KvCluster.Replication.Protocol;
using KvCluster.Tls;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>
/// The client for etcd's API against the real etcd: one member and three, in clear text and with TLS, with users, and with members that stop.
/// </summary>
[Trait("Turn", "7")]
public sealed class RealEtcdTests
{
    private static readonly CancellationToken Never = CancellationToken.None;

    // Long enough to be used after it was issued, even on a busy machine. etcd ends it up to a second later.
    private const string TokenSeconds = "3";
    private static readonly TimeSpan TokenLife = TimeSpan.FromSeconds(4.5);

    [ToolFact("etcd", "etcdctl")]
    public async Task Contract_WithOneMember_Holds()
    {
        await using var etcd = await EtcdProcesses.StartAsync();
        await using var coordinator = Connect(new EtcdOptions { Endpoints = etcd.Endpoints });
        await CoordinatorContract.CheckAsync(coordinator);
    }

    [ToolFact("etcd", "etcdctl")]
    public async Task Contract_WithThreeMembersTlsAndClientCertificates_Holds()
    {
        // A busy machine must not cost etcd its leader, because that would give an unknown outcome.
        await using var etcd = await EtcdProcesses.StartAsync(3, secure: true, "--heartbeat-interval", "500", "--election-timeout", "10000");
        await using var coordinator = Connect(Secured(etcd));
        await CoordinatorContract.CheckAsync(coordinator);
    }

    [ToolFact("etcd", "etcdctl")]
    public async Task Get_WithoutTheRightCertificates_IsRefused()
    {
        await using var etcd = await EtcdProcesses.StartAsync(secure: true);
        await using var without = Connect(Secured(etcd) with { CertificateFile = null, KeyFile = null });
        await Assert.ThrowsAsync<CoordinatorUnavailableException>(() => without.GetAsync("/k", Never));
        using var folder = new TemporaryDirectory();
        await using var distrusting = Connect(Secured(etcd) with { AuthorityFile = new EtcdCertificates(folder.Path).AuthorityFile });
        await Assert.ThrowsAsync<CoordinatorUnavailableException>(() => distrusting.GetAsync("/k", Never));
    }

    [Fact]
    public void Create_WithAFileThatIsNoCertificate_NamesTheFile()
    {
        using var folder = new TemporaryDirectory();
        var file = Path.Combine(folder.Path, "ca.pem");
        File.WriteAllText(file, "nothing");
        var options = new EtcdOptions { Endpoints = ["https://127.0.0.1:1"], AuthorityFile = file };
        Assert.Contains(file, Assert.Throws<UnusableFileException>(() => Connect(options)).Message, StringComparison.Ordinal);
        Assert.Contains(
            "absent.pem", Assert.Throws<UnusableFileException>(() => Connect(options with { AuthorityFile = "absent.pem" })).Message, StringComparison.Ordinal);
    }

    /// <summary>Tokens live for some seconds here. Every kind of call works after tokens ended and after a restart that forgets them all.</summary>
    [ToolFact("etcd", "etcdctl")]
    public async Task Calls_OfAUser_ContinueWhenItsTokenEnds()
    {
        await using var etcd = await EtcdProcesses.StartAsync(arguments: ["--auth-token-ttl", TokenSeconds]);
        await AddUserAsync(etcd, "node", "secret");
        await using var coordinator = Connect(new EtcdOptions { Endpoints = etcd.Endpoints, User = "node", Password = "secret" });
        await CoordinatorContract.CheckAsync(coordinator);

        var lease = await coordinator.GrantLeaseAsync(Eventually.Limit, Never);
        var revision = 0L;
        for (var round = 0; round < 2; round++)
        {
            // Wait until etcd itself refuses the old token to a client that has no other.
            await TokenEndsAsync(etcd);
            var set = await coordinator.CompareAndSetAsync("/kvcluster/user", revision, $"{round}", 0, Never);
            Assert.Equal(SetOutcome.Won, set.Outcome);
            revision = set.Revision;
        }
        Assert.True(await coordinator.KeepAliveAsync(lease, Never));
        await etcd.RestartAsync(() => { });
        Assert.Equal("1", (await coordinator.GetUntilAnsweredAsync("/kvcluster/user", Never)).Value);
        Assert.Equal(SetOutcome.Won, (await coordinator.CompareAndSetAsync("/kvcluster/user", revision, "after", 0, Never)).Outcome);
    }

    [ToolFact("etcd", "etcdctl")]
    public async Task Watch_OfAUserWhoseTokenEnded_ContinuesWithANewToken()
    {
        await using var etcd = await EtcdProcesses.StartAsync(arguments: ["--auth-token-ttl", TokenSeconds]);
        await AddUserAsync(etcd, "node", "secret");
        await using var coordinator = Connect(new EtcdOptions { Endpoints = etcd.Endpoints, User = "node", Password = "secret" });
        var set = await coordinator.CompareAndSetAsync("/kvcluster/w", 0, "1", 0, Never);
        await TokenEndsAsync(etcd);
        // The first attempt may be refused because of its token. The next one has another token, which may also end if it takes long.
        for (var attempt = 0; ; attempt++)
        {
            try
            {
                await using var changes = coordinator.WatchAsync("/kvcluster/", set.Revision, Never).GetAsyncEnumerator();
                Assert.True(await changes.MoveNextAsync().AsTask().WaitAsync(Eventually.Limit));
                Assert.Equal("1", changes.Current.Single().Value);
                return;
            }
            catch (CoordinatorUnavailableException) when (attempt < 10)
            {
                continue;
            }
        }
    }

    [ToolFact("etcd", "etcdctl")]
    public async Task Calls_OfAUserWithAWrongPasswordOrWithoutPermission_AreRefusedAndChangeNothing()
    {
        await using var etcd = await EtcdProcesses.StartAsync();
        await AddUserAsync(etcd, "node", "secret");
        var options = new EtcdOptions { Endpoints = etcd.Endpoints, User = "node", Password = "secret" };
        await using var wrong = Connect(options with { Password = "guessed" });
        await Assert.ThrowsAsync<CoordinatorDeniedException>(() => wrong.GetAsync("/kvcluster/k", Never));
        await Assert.ThrowsAsync<CoordinatorDeniedException>(() => wrong.CompareAndSetAsync("/kvcluster/k", 0, "1", 0, Never));
        await using var nobody = Connect(options with { User = null });
        await Assert.ThrowsAsync<CoordinatorDeniedException>(() => nobody.CompareAndSetAsync("/kvcluster/k", 0, "1", 0, Never));
        await using var user = Connect(options);
        await Assert.ThrowsAsync<CoordinatorDeniedException>(() => user.CompareAndSetAsync("/elsewhere", 0, "1", 0, Never));
        Assert.Null((await user.GetAsync("/kvcluster/k", Never)).Value);
    }

    /// <summary>F9: each member dies once, etcd's leader among them. A change of unknown outcome is settled by repeating the compare.</summary>
    [ToolFact("etcd", "etcdctl")]
    public async Task Calls_WhileOneMemberAfterTheOtherDies_ContinueAtTheOthers()
    {
        await using var etcd = await EtcdProcesses.StartAsync(3);
        await using var coordinator = Connect(new EtcdOptions { Endpoints = etcd.Endpoints });
        var revision = 0L;
        for (var member = 0; member < etcd.Count; member++)
        {
            await etcd.KillAsync(member);
            using var limit = new CancellationTokenSource(Eventually.Limit);
            var set = await coordinator.SetUntilSettledAsync("/k", revision, $"without {member}", 0, limit.Token);
            Assert.Equal(SetOutcome.Won, set.Outcome);
            revision = set.Revision;
            Assert.Equal($"without {member}", (await coordinator.GetUntilAnsweredAsync("/k", limit.Token)).Value);
            etcd.Start(member);
            await etcd.LeaderAsync();
        }
    }

    /// <summary>A member that is stopped or cut off from the others must not hold a watch for ever.</summary>
    [ToolFact("etcd", "etcdctl")]
    public async Task Watch_AtAMemberWithoutALeader_Ends()
    {
        await using var etcd = await EtcdProcesses.StartAsync(3);
        await using var coordinator = Connect(new EtcdOptions { Endpoints = etcd.Endpoints });
        var revision = (await coordinator.ListAsync("/", Never)).Revision;
        var watching = coordinator.WatchAsync("/", revision + 1, Never).GetAsyncEnumerator().MoveNextAsync().AsTask();
        await etcd.KillAsync(1);
        await etcd.KillAsync(2);
        await Assert.ThrowsAsync<CoordinatorUnavailableException>(() => watching.WaitAsync(Eventually.Limit));
        Assert.Equal(SetOutcome.Unknown, (await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never)).Outcome);
    }

    [ToolFact("etcd", "etcdctl")]
    public async Task Watch_FromACompactedRevision_ReportsIt()
    {
        await using var etcd = await EtcdProcesses.StartAsync();
        await using var coordinator = Connect(new EtcdOptions { Endpoints = etcd.Endpoints });
        var first = await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never);
        var second = await coordinator.CompareAndSetAsync("/k", first.Revision, "2", 0, Never);
        await etcd.ControlAsync("compact", $"{second.Revision}");
        await Assert.ThrowsAsync<CoordinatorCompactedException>(
            async () => await coordinator.WatchAsync("/", first.Revision, Never).GetAsyncEnumerator().MoveNextAsync());
    }

    /// <summary>F11: an older copy of the data directory is restored, so its revision is lower than one seen before.</summary>
    [ToolFact("etcd", "etcdctl")]
    public async Task CompareAndSet_AfterARestoredBackup_ChangesNothing()
    {
        await using var etcd = await EtcdProcesses.StartAsync();
        await using var coordinator = Connect(new EtcdOptions { Endpoints = etcd.Endpoints });
        using var backup = new TemporaryDirectory();
        var first = await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never);
        await etcd.RestartAsync(() => EtcdProcesses.CopyFolder(etcd.DataOf(0), backup.Path));
        using var limit = new CancellationTokenSource(Eventually.Limit);
        Assert.Equal(SetOutcome.Won, (await coordinator.SetUntilSettledAsync("/k", first.Revision, "2", 0, limit.Token)).Outcome);
        await etcd.RestartAsync(() =>
        {
            Directory.Delete(etcd.DataOf(0), recursive: true);
            EtcdProcesses.CopyFolder(backup.Path, etcd.DataOf(0));
        });
        await Assert.ThrowsAsync<CoordinatorAlarmException>(() => coordinator.GetUntilAnsweredAsync("/k", limit.Token));
        await Assert.ThrowsAsync<CoordinatorAlarmException>(() => coordinator.CompareAndSetAsync("/k", first.Revision, "3", 0, limit.Token));
        Assert.EndsWith("\n1", await etcd.ControlAsync("get", "/k"), StringComparison.Ordinal);
    }

    // A busy machine or a slow disk must not cause an unknown outcome here.
    private static EtcdCoordinator Connect(EtcdOptions options) => new(options with { RequestTime = Eventually.Limit }, NullLogger.Instance);

    private static EtcdOptions Secured(EtcdProcesses etcd) => new()
    {
        Endpoints = etcd.Endpoints,
        AuthorityFile = etcd.Certificates!.AuthorityFile,
        CertificateFile = etcd.Certificates.ClientFile,
        KeyFile = etcd.Certificates.ClientKeyFile,
    };

    private static async Task AddUserAsync(EtcdProcesses etcd, string user, string password)
    {
        await etcd.ControlAsync("role", "add", "nodes");
        foreach (var prefix in (string[])["/kvcluster/", "/a/", "/b", "/c/", "/d/", "/g/", "/other"])
            await etcd.ControlAsync("role", "grant-permission", "--prefix", "nodes", "readwrite", prefix);
        await etcd.ControlAsync("user", "add", $"{user}:{password}");
        await etcd.ControlAsync("user", "grant-role", user, "nodes");
        await etcd.ControlAsync("user", "add", "root:root");
        await etcd.ControlAsync("user", "grant-role", "root", "root");
        await etcd.ControlAsync("auth", "enable");
    }

    // Shows that tokens of this age are refused, with a token that etcd issued after all others.
    private static async Task TokenEndsAsync(EtcdProcesses etcd)
    {
        using var channel = GrpcChannel.ForAddress(etcd.Endpoints[0]);
        var token = (await new Auth.AuthClient(channel.Calls()).AuthenticateAsync(new AuthenticateRequest { Name = "node", Password = "secret" })).Token;
        var kv = new KV.KVClient(channel.Calls());
        using var limit = new CancellationTokenSource(Eventually.Limit);
        while (true)
        {
            try
            {
                // Each use prolongs the token's life, so it is used seldom.
                await Task.Delay(TokenLife, limit.Token);
                await kv.RangeAsync(EtcdRequests.Get("/kvcluster/"), new Metadata { { "token", token } });
            }
            catch (RpcException refused) when (refused.StatusCode == StatusCode.Unauthenticated)
            {
                return;
            }
        }
    }
}
