// The coordinator behind etcd's API: etcd itself, or an embedded one served by another process. One member is used until it fails, then the next
// (EtcdMembers). Each change is sent once; if its answer is lost, the result says so. Every answer's header is checked (EtcdRestoreCheck): another cluster id,
// or a revision below one seen before the request was sent, means a restored or replaced store, and from then on nothing is changed any more.
using System.Runtime.CompilerServices;
using Etcdserverpb;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Replication.Protocol;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Coordination.Etcd;

/// <summary>A client of etcd's API. Thread-safe.</summary>
internal sealed partial class EtcdCoordinator : ICoordinator
{
    private readonly EtcdMembers _members;
    private readonly string _addresses;
    private readonly EtcdOptions _options;
    private readonly IDisposable? _certificate;
    private readonly EtcdLogin _login;
    private readonly EtcdRestoreCheck _check;
    private readonly TimeSpan _requestTime;
    private readonly ILogger _log;
    private bool _isSilent;

    /// <exception cref="UnusableFileException">A file named by the options is not usable.</exception>
    public EtcdCoordinator(EtcdOptions options, ILogger log)
        : this(options, showsCertificate: true, log)
    {
    }

    private EtcdCoordinator(EtcdOptions options, bool showsCertificate, ILogger log)
    {
        _options = options;
        var files = new CredentialFiles(
            new TlsFiles { AuthorityFile = options.AuthorityFile, CertificateFile = options.CertificateFile, KeyFile = options.KeyFile }, TimeProvider.System);
        _certificate = showsCertificate ? CertificateMetrics.Show(files, TimeProvider.System) : null;
        var connector = new TlsConnector(files);
        _members = new EtcdMembers([.. options.Endpoints.Select(address => new EtcdEndpoint(address, connector, options.RequestTime))]);
        _addresses = string.Join(", ", options.Endpoints);
        _login = new EtcdLogin(options.User, options.Password, options.RequestTime);
        _requestTime = options.RequestTime;
        _check = new EtcdRestoreCheck(log);
        _log = log;
    }

    public async Task<CoordinatorRead> GetAsync(string key, CancellationToken cancellationToken) =>
        EtcdRequests.ToRead(await RangeAsync(EtcdRequests.Get(key), cancellationToken).ConfigureAwait(false));

    public async Task<CoordinatorList> ListAsync(string prefix, CancellationToken cancellationToken) =>
        EtcdRequests.ToList(await RangeAsync(EtcdRequests.List(prefix), cancellationToken).ConfigureAwait(false));

    public async Task<CompareAndSetResult> CompareAndSetAsync(
        string key, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken)
    {
        _check.ThrowIfAlarmed();
        var before = _check.Seen;
        TxnResponse response;
        try
        {
            var request = EtcdRequests.CompareAndSet(key, expectedRevision, value, lease, guardedBy);
            response = await CallAsync((endpoint, call) => endpoint.Kv.TxnAsync(request, call).ResponseAsync, cancellationToken).ConfigureAwait(false);
        }
        catch (RpcException failure) when (IsRefusal(failure))
        {
            throw Unavailable(failure, cancellationToken);
        }
        catch (Exception failure) when (failure is RpcException or OperationCanceledException)
        {
            cancellationToken.ThrowIfCancellationRequested();
            return new CompareAndSetResult(SetOutcome.Unknown, 0);
        }
        // The transaction was sent, and the store that answered is not the one that was asked. So the outcome is unknown.
        if (!_check.Accepts(response.Header, before))
            return new CompareAndSetResult(SetOutcome.Unknown, 0);
        if (EtcdRequests.IsBroken(guardedBy, response))
            throw guardedBy!.Broken();
        return new CompareAndSetResult(response.Succeeded ? SetOutcome.Won : SetOutcome.Lost, response.Header.Revision);
    }

    public async IAsyncEnumerable<IReadOnlyList<CoordinatorChange>> WatchAsync(
        string prefix, long fromRevision, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        var key = ByteString.CopyFromUtf8(prefix);
        var create = new WatchCreateRequest { Key = key, RangeEnd = EtcdRequests.EndOfPrefix(key), StartRevision = fromRevision };
        var endpoint = _members.Current;
        // A watch lags behind other answers, so only its cluster id is checked.
        var store = _check.Seen with { Revision = 0 };
        var token = await TokenAsync(endpoint, cancellationToken).ConfigureAwait(false);
        using var call = endpoint.Watch.Watch(Headers(token), cancellationToken: cancellationToken);
        await StartAsync(endpoint, call, create, cancellationToken).ConfigureAwait(false);
        while (true)
        {
            var response = await NextAsync(endpoint, call, store, cancellationToken).ConfigureAwait(false);
            if (response.CompactRevision > 0)
                throw new CoordinatorCompactedException(response.CompactRevision);
            if (response.Canceled && EtcdLogin.IsRefused(response.CancelReason))
                _login.Forget(token);
            if (response.Canceled)
                throw new CoordinatorUnavailableException($"The watch was cancelled: {response.CancelReason}");
            if (response.Events.Count > 0)
                yield return EtcdRequests.ToChanges(response.Events);
        }
    }

    public async Task<long> GrantLeaseAsync(TimeSpan timeToLive, CancellationToken cancellationToken)
    {
        _check.ThrowIfAlarmed();
        var request = new LeaseGrantRequest { TTL = (long)Math.Ceiling(timeToLive.TotalSeconds) };
        // If the answer is lost, the granted lease ends by itself.
        var response = await AskAsync((endpoint, call) => endpoint.Lease.LeaseGrantAsync(request, call).ResponseAsync, cancellationToken).ConfigureAwait(false);
        return response.ID;
    }

    public async Task<bool> KeepAliveAsync(long lease, CancellationToken cancellationToken)
    {
        var response = await AskAsync(
            async (endpoint, options) =>
            {
                using var call = endpoint.Lease.LeaseKeepAlive(options);
                await call.RequestStream.WriteAsync(new LeaseKeepAliveRequest { ID = lease }).ConfigureAwait(false);
                if (!await call.ResponseStream.MoveNext(cancellationToken).ConfigureAwait(false))
                    throw new CoordinatorUnavailableException("The keep-alive ended without an answer.");
                return call.ResponseStream.Current;
            },
            cancellationToken).ConfigureAwait(false);
        return response.TTL > 0;
    }

    public async Task RevokeAsync(long lease, CancellationToken cancellationToken)
    {
        try
        {
            var request = new LeaseRevokeRequest { ID = lease };
            await CallAsync((endpoint, call) => endpoint.Lease.LeaseRevokeAsync(request, call).ResponseAsync, cancellationToken).ConfigureAwait(false);
        }
        catch (RpcException failure) when (failure.StatusCode == StatusCode.NotFound)
        {
            // The lease has already ended.
            return;
        }
        catch (RpcException failure)
        {
            throw Unavailable(failure, cancellationToken);
        }
    }

    /// <summary>
    /// Streams the database of the current member and its checksum, in the form of <c>etcdctl snapshot save</c>. It has everything that a read before this call
    /// has returned, because that made the member catch up.
    /// </summary>
    /// <param name="write">Receives the parts in order, one at a time. They are valid during the call.</param>
    /// <param name="cancellationToken">Ends the stream. What was received is of no use.</param>
    /// <exception cref="CoordinatorUnavailableException">No answer, it ended early, or nothing came for
    /// <see cref="EtcdOptions.SnapshotSilenceMax"/>.</exception>
    public async Task SnapshotAsync(Action<ReadOnlyMemory<byte>> write, CancellationToken cancellationToken)
    {
        _check.ThrowIfAlarmed();
        var endpoint = _members.Current;
        var token = await TokenAsync(endpoint, cancellationToken).ConfigureAwait(false);
        // A member that hangs may answer pings, and a snapshot has no size by which to set a deadline.
        using var silence = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        silence.CancelAfter(_options.SnapshotSilenceMax);
        using var call = endpoint.Maintenance.Snapshot(new SnapshotRequest(), Headers(token), cancellationToken: silence.Token);
        try
        {
            while (await call.ResponseStream.MoveNext(silence.Token).ConfigureAwait(false))
            {
                // The receiver's disk may take its time.
                silence.CancelAfter(Timeout.InfiniteTimeSpan);
                write(call.ResponseStream.Current.Blob.Memory);
                silence.CancelAfter(_options.SnapshotSilenceMax);
            }
        }
        catch (Exception failure)
            when (failure is RpcException or OperationCanceledException && silence.IsCancellationRequested && !cancellationToken.IsCancellationRequested)
        {
            _members.MoveOn(endpoint);
            throw new CoordinatorUnavailableException(
                $"The coordinator at {endpoint.Address} sent nothing of its snapshot for {_options.SnapshotSilenceMax.TotalSeconds:0.###} s. "
                + "Nothing was saved or deleted.", failure);
        }
        catch (RpcException failure)
        {
            _members.MoveOn(endpoint);
            throw Unavailable(failure, cancellationToken);
        }
    }

    public ICoordinator Anew() => new EtcdCoordinator(_options, showsCertificate: false, _log);

    public void ContinueAs(ICoordinator anew)
    {
        _check.ContinueAs(((EtcdCoordinator)anew)._check);
        Continues(_log);
    }

    public ValueTask DisposeAsync()
    {
        _certificate?.Dispose();
        _members.Dispose();
        return ValueTask.CompletedTask;
    }

    // With this header a member without a leader refuses calls at once and ends watches, instead of leaving both waiting.
    private static Metadata Headers(string? token) =>
        token is null ? new Metadata { { "hasleader", "true" } } : new Metadata { { "hasleader", "true" }, { "token", token } };

    /// <summary>Whether etcd refused the call before it proposed anything.</summary>
    private static bool IsRefusal(RpcException failure) =>
        failure.StatusCode is StatusCode.InvalidArgument or StatusCode.NotFound or StatusCode.Unimplemented or StatusCode.PermissionDenied
            or StatusCode.Unauthenticated or StatusCode.FailedPrecondition or StatusCode.ResourceExhausted;

    private Exception Unavailable(RpcException failure, CancellationToken cancellationToken) => cancellationToken.IsCancellationRequested
        ? new OperationCanceledException(cancellationToken)
        : EtcdLogin.IsDenied(failure.Status)
            ? new CoordinatorDeniedException($"The coordinator at {_addresses} refuses {_login}: {failure.Status.Detail}", failure)
            : new CoordinatorUnavailableException(
                $"The coordinator at {_addresses} {(IsRefusal(failure) ? "refused a request, which changed nothing" : "does not answer")}: "
                + $"{failure.StatusCode} {failure.Status.Detail}{Question(_options, failure.Status.Detail)}", failure);

    /// <summary>What to ask of a server that takes a connection and ends it before it answers; "" for other failures.</summary>
    internal static string Question(EtcdOptions options, string detail)
    {
        if (!detail.Contains("prematurely", StringComparison.Ordinal) && !detail.Contains("closed it immediately", StringComparison.Ordinal))
            return "";
        var question = !options.Endpoints[0].StartsWith("https:", StringComparison.OrdinalIgnoreCase)
            ? "Does it require https:// (coordinator, coordinator-ca)?"
            : options.CertificateFile is null ? "Does it require a client certificate (coordinator-cert, coordinator-key)?"
            : "Does it accept the client certificate (coordinator-cert), and does it speak TLS at all?";
        return (detail.EndsWith('.') ? " " : ". ") + question;
    }

    // Sent once, to one member. Sent a second time if the first was refused because of its token, which certainly was before it had any effect.
    private async Task<T> CallAsync<T>(Func<EtcdEndpoint, CallOptions, Task<T>> call, CancellationToken cancellationToken)
    {
        for (var isRenewed = false; ; isRenewed = true)
        {
            var endpoint = _members.Current;
            string? token = null;
            try
            {
                token = await _login.TokenAsync(endpoint, cancellationToken).ConfigureAwait(false);
                var options = new CallOptions(Headers(token), deadline: DateTime.UtcNow + _requestTime, cancellationToken: cancellationToken);
                var answer = await call(endpoint, options).ConfigureAwait(false);
                Answered(endpoint);
                return answer;
            }
            catch (RpcException refused) when (!isRenewed && EtcdLogin.IsRefused(refused.Status))
            {
                _login.Forget(token);
            }
            catch (RpcException failure) when (!IsRefusal(failure))
            {
                _members.MoveOn(endpoint);
                if (!cancellationToken.IsCancellationRequested && Interlocked.Exchange(ref _isSilent, true) is false)
                    DoesNotAnswer(_log, endpoint.Address, failure.Status.Detail);
                throw;
            }
        }
    }

    // Makes a call that may be repeated. Every member is asked until one answers. Members that are down refuse at once; a silent one ends the round.
    private async Task<T> AskAsync<T>(Func<EtcdEndpoint, CallOptions, Task<T>> call, CancellationToken cancellationToken)
    {
        for (var attempt = 1; ; attempt++)
        {
            try
            {
                return await CallAsync(call, cancellationToken).ConfigureAwait(false);
            }
            catch (RpcException failure)
                when (failure.StatusCode == StatusCode.Unavailable && attempt < _members.Count && !cancellationToken.IsCancellationRequested)
            {
                continue;
            }
            catch (RpcException failure)
            {
                throw Unavailable(failure, cancellationToken);
            }
        }
    }

    private async Task<RangeResponse> RangeAsync(RangeRequest request, CancellationToken cancellationToken)
    {
        var before = _check.Seen;
        var response = await AskAsync((endpoint, call) => endpoint.Kv.RangeAsync(request, call).ResponseAsync, cancellationToken).ConfigureAwait(false);
        _check.Check(response.Header, before);
        return response;
    }

    private async Task<string?> TokenAsync(EtcdEndpoint endpoint, CancellationToken cancellationToken)
    {
        try
        {
            return await _login.TokenAsync(endpoint, cancellationToken).ConfigureAwait(false);
        }
        catch (RpcException failure)
        {
            _members.MoveOn(endpoint);
            throw Unavailable(failure, cancellationToken);
        }
    }

    private async Task StartAsync(
        EtcdEndpoint endpoint, AsyncDuplexStreamingCall<WatchRequest, WatchResponse> call, WatchCreateRequest create, CancellationToken cancellationToken)
    {
        try
        {
            await call.RequestStream.WriteAsync(new WatchRequest { CreateRequest = create }).ConfigureAwait(false);
        }
        catch (RpcException failure)
        {
            _members.MoveOn(endpoint);
            throw Unavailable(failure, cancellationToken);
        }
    }

    private async Task<WatchResponse> NextAsync(
        EtcdEndpoint endpoint, AsyncDuplexStreamingCall<WatchRequest, WatchResponse> call, SeenStore store, CancellationToken cancellationToken)
    {
        try
        {
            if (!await call.ResponseStream.MoveNext(cancellationToken).ConfigureAwait(false))
                throw new CoordinatorUnavailableException("The watch ended.");
        }
        catch (RpcException failure)
        {
            _members.MoveOn(endpoint);
            throw Unavailable(failure, cancellationToken);
        }
        _check.Check(call.ResponseStream.Current.Header, store);
        return call.ResponseStream.Current;
    }

    private void Answered(EtcdEndpoint endpoint)
    {
        var before = _members.Answered(endpoint);
        if (Interlocked.Exchange(ref _isSilent, false))
            AnswersAgain(_log, endpoint.Address);
        if (before is not null && before != endpoint)
            TalksTo(_log, endpoint.Address, before.Address);
    }

    [LoggerMessage(2, LogLevel.Warning, "The coordinator at {Address} does not answer: {Reason}")]
    private static partial void DoesNotAnswer(ILogger log, string address, string reason);

    [LoggerMessage(3, LogLevel.Information, "The coordinator at {Address} answers again")]
    private static partial void AnswersAgain(ILogger log, string address);

    [LoggerMessage(
        4, LogLevel.Warning, "The coordinator is another store than before, whose records were rebuilt from the nodes of this cluster. This node goes by them")]
    private static partial void Continues(ILogger log);

    [LoggerMessage(1, LogLevel.Information, "The coordinator answers at {Address}, no longer at {Before}")]
    private static partial void TalksTo(ILogger log, string address, string before);
}
