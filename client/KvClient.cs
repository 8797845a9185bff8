using System.Runtime.CompilerServices;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Client.Runtime;
using KvCluster.Client.Sessions;
using KvCluster.Client.Transport;
using KvCluster.Tls;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Client;

/// <summary>
/// A client of a KvCluster. Thread-safe; create one per process and keep it. It sends each call to the leader of the key's shard, follows changes of leader,
/// and repeats unanswered calls until <see cref="KvClientOptions.Timeout"/>. A repeated change is still applied only once
/// (<see cref="KvClientOptions.ExactlyOnce"/>). Memory passed to a call must not change until the call has ended.
/// </summary>
/// <remarks>
/// Errors are <see cref="KvException"/> and its subclasses. <see cref="OperationCanceledException"/> means that the caller stopped waiting; a change may
/// still be applied.
/// </remarks>
public sealed class KvClient : IAsyncDisposable
{
    private readonly KvClientOptions _options;
    private readonly CallRouter _calls;
    private readonly ClientSessions _sessions;
    private readonly SessionToken _seen = new();
    private readonly NodeChannels _channels;

    /// <summary>Creates a client that learns the cluster from this address of a router or a node, "http://host:port".</summary>
    public KvClient(string endpoint)
        : this(new KvClientOptions { Endpoints = [endpoint] })
    {
    }

    /// <summary>Creates a client with these options. It connects with the first call.</summary>
    /// <exception cref="ArgumentException">The options are invalid; the message lists every mistake.</exception>
    /// <exception cref="KvException">A file of <see cref="KvClientOptions.Tls"/> is not usable; the message names it and says why.</exception>
    public KvClient(KvClientOptions options)
    {
        options.Validate();
        _options = options;
        var connector = ConnectorOf(options.Tls);
        _channels = new NodeChannels(connector);
        _calls = new CallRouter(options, new GrpcConnector(connector, options.CallsInFlightMax, options.Log), ClientRuntime.Machine);
        _sessions = new ClientSessions(_calls);
    }

    /// <summary>Creates a client whose calls on keys use the given network and clock. Scans and operator calls still use gRPC.</summary>
    internal KvClient(KvClientOptions options, INodeConnector connector, ClientRuntime runtime)
    {
        _options = options;
        _channels = new NodeChannels(ConnectorOf(options.Tls));
        _calls = new CallRouter(options, connector, runtime);
        _sessions = new ClientSessions(_calls);
    }

    /// <summary>
    /// Returns the value of a key in the mode <see cref="KvClientOptions.Read"/>. By default it reflects every change acknowledged before the call.
    /// </summary>
    public ValueTask<GetResult> GetAsync(ReadOnlyMemory<byte> key, CancellationToken cancellationToken = default) => GetAsync(key, _options.Read, cancellationToken);

    /// <inheritdoc cref="GetAsync(ReadOnlyMemory{byte}, CancellationToken)"/>
    public ValueTask<GetResult> GetAsync(string key, CancellationToken cancellationToken = default) => GetAsync(Bytes.Utf8(key), _options.Read, cancellationToken);

    /// <inheritdoc cref="GetAsync(ReadOnlyMemory{byte}, KvReadMode, CancellationToken)"/>
    public ValueTask<GetResult> GetAsync(string key, KvReadMode read, CancellationToken cancellationToken = default) => GetAsync(Bytes.Utf8(key), read, cancellationToken);

    /// <summary>Returns the value of a key.</summary>
    /// <param name="key">1 to 2,048 bytes.</param>
    /// <param name="read">How up to date it must be, and which replicas may serve it.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvUnavailableException">Reason REPLICA_BEHIND: no replica caught up in time with what this client has seen.</exception>
    public async ValueTask<GetResult> GetAsync(ReadOnlyMemory<byte> key, KvReadMode read, CancellationToken cancellationToken = default)
    {
        var request = new GetRequest { Key = key.ToByteString(), Read = _seen.ToOptions(read, _calls.Table.Find(key.Span)?.Shard) };
        var reply = await _calls.CallAsync(
            Method.Get, key, request.ToByteString(), _calls.DeadlineFromNow(), cancellationToken, atAnyReplica: request.Read?.Mode.IsForLeader() == false).ConfigureAwait(false);
        return ToResult(GetResponse.Parser.ParseFrom(ResponseOf(reply)));
    }

    /// <summary>
    /// Returns the values of many keys, in the order of <paramref name="keys"/>, in the mode <see cref="KvClientOptions.Read"/>. Keys of one shard are read
    /// from one snapshot, keys of different shards at different moments.
    /// </summary>
    public ValueTask<IReadOnlyList<GetResult>> GetManyAsync(IReadOnlyList<ReadOnlyMemory<byte>> keys, CancellationToken cancellationToken = default) =>
        GetManyAsync(keys, _options.Read, cancellationToken);

    /// <summary>
    /// Returns the values of many keys, in the order of <paramref name="keys"/>. Keys of one shard are read from one snapshot, keys of different shards at
    /// different moments.
    /// </summary>
    /// <param name="keys">Each 1 to 2,048 bytes.</param>
    /// <param name="read">How up to date they must be, and which replicas may serve them.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    public async ValueTask<IReadOnlyList<GetResult>> GetManyAsync(IReadOnlyList<ReadOnlyMemory<byte>> keys, KvReadMode read, CancellationToken cancellationToken = default)
    {
        var messages = await ManyKeys.GetAsync(
            _calls, [.. keys.Select(key => key.ToByteString())], _seen.ToOptions(read, shard: null), _calls.DeadlineFromNow(), cancellationToken).ConfigureAwait(false);
        if (messages.Error is { } error)
            throw KvErrors.ToException(error);
        return [.. messages.Entries.Select(ToResult)];
    }

    /// <summary>
    /// Makes this client's <see cref="KvReadMode.Session"/> reads reflect another position too, for example of another client's answer. Positions of this
    /// client's own answers are observed without this call.
    /// </summary>
    public void Observe(ShardPosition position) => _seen.Raise(position);

    /// <summary>Sets a key. Completes when the change is durable on a majority of the shard's replicas.</summary>
    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    public async ValueTask<ShardPosition> PutAsync(
        ReadOnlyMemory<byte> key, ReadOnlyMemory<byte> value, KvCondition? condition = null, CancellationToken cancellationToken = default) =>
        ReadPosition(await ChangeAsync(new Change(Method.Put, key, value, condition, null), cancellationToken).ConfigureAwait(false), out _);

    /// <inheritdoc cref="PutAsync(ReadOnlyMemory{byte}, ReadOnlyMemory{byte}, KvCondition?, CancellationToken)"/>
    public ValueTask<ShardPosition> PutAsync(string key, string value, KvCondition? condition = null, CancellationToken cancellationToken = default) =>
        PutAsync(Bytes.Utf8(key), Bytes.Utf8(value), condition, cancellationToken);

    /// <summary>Removes a key. It is not an error if the key does not exist.</summary>
    public async ValueTask<DeleteResult> DeleteAsync(ReadOnlyMemory<byte> key, KvCondition? condition = null, CancellationToken cancellationToken = default)
    {
        var request = new DeleteRequest { Key = key.ToByteString() };
        if (condition is not null)
            request.Conditions.Add(condition.Message);
        var response = await ChangeAsync(new Change(Method.Delete, key, default, null, request), cancellationToken).ConfigureAwait(false);
        var position = ReadPosition(response, out var existed);
        return new DeleteResult(existed, position);
    }

    /// <inheritdoc cref="DeleteAsync(ReadOnlyMemory{byte}, KvCondition?, CancellationToken)"/>
    public ValueTask<DeleteResult> DeleteAsync(string key, KvCondition? condition = null, CancellationToken cancellationToken = default) =>
        DeleteAsync(Bytes.Utf8(key), condition, cancellationToken);

    /// <summary>Applies operations on keys of one shard, under conditions, atomically. The position is that of the last operation.</summary>
    public async ValueTask<ShardPosition> WriteAsync(KvWrite write, CancellationToken cancellationToken = default) =>
        ReadPosition(await ChangeAsync(new Change(Method.Write, write.FirstKey, default, null, write.Message), cancellationToken).ConfigureAwait(false), out _);

    /// <summary>
    /// Returns entries in key order, from one snapshot for each shard. If a leader changes during the scan, it continues by itself; the rest of that shard is
    /// then from another snapshot, in most modes a newer one.
    /// </summary>
    public async IAsyncEnumerable<KvEntry> ScanAsync(KvScan scan, [EnumeratorCancellation] CancellationToken cancellationToken = default)
    {
        var walk = Walk(scan, cancellationToken);
        await using (walk.ConfigureAwait(false))
        {
            while (await MoveNextAsync(walk, cancellationToken).ConfigureAwait(false))
            {
                foreach (var entry in walk.Current.Entries)
                    yield return new KvEntry(entry.Key.Memory, entry.Value.Memory, entry.Etag.ToEtag());
            }
        }
    }

    /// <summary>Counts the keys with a prefix, by reading them all.</summary>
    public Task<long> CountAsync(ReadOnlyMemory<byte> prefix, CancellationToken cancellationToken = default) => CountAsync(prefix, _options.Read, cancellationToken);

    /// <inheritdoc cref="CountAsync(ReadOnlyMemory{byte}, CancellationToken)"/>
    public async Task<long> CountAsync(ReadOnlyMemory<byte> prefix, KvReadMode read, CancellationToken cancellationToken = default)
    {
        var count = 0L;
        var scan = new KvScan { Prefix = prefix, KeysOnly = true, Read = read };
        var walk = Walk(scan, cancellationToken);
        await using (walk.ConfigureAwait(false))
        {
            while (await MoveNextAsync(walk, cancellationToken).ConfigureAwait(false))
                count += walk.Current.Entries.Count;
        }
        return count;
    }

    /// <summary>Returns the status of every node. A node that does not answer is listed with its error.</summary>
    /// <param name="digest">Also compute a digest of every replica, which reads its whole tree.</param>
    /// <param name="shard">Return only this shard's replicas, each with its detail; null returns all replicas without detail.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    public async Task<ClusterStatus> GetStatusAsync(bool digest = false, uint? shard = null, CancellationToken cancellationToken = default)
    {
        var request = new GetStatusRequest { Digest = digest };
        if (shard is { } id)
            request.Shard = id;
        return StatusReading.ToStatus(await GetStatusAsync(request, _options.Timeout, cancellationToken).ConfigureAwait(false));
    }

    /// <summary>Returns the status as its message.</summary>
    /// <param name="request">What to return.</param>
    /// <param name="timeout">A node that has not answered by then is listed with its error.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    internal async Task<GetStatusResponse> GetStatusAsync(GetStatusRequest request, TimeSpan timeout, CancellationToken cancellationToken)
    {
        return await OperateAsync(
            (channel, options) => new Cluster.ClusterClient(channel).GetStatusAsync(request, options),
            (nodes, deadlineMs) => nodes.GetStatusAsync(request, deadlineMs, cancellationToken),
            isChange: false, timeout, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>Makes every replica of every node write a checkpoint.</summary>
    public async Task<IReadOnlyList<ReplicaCheckpoint>> CheckpointAsync(CancellationToken cancellationToken = default)
    {
        var request = new CheckpointRequest();
        var answer = await OperateAsync(
            (channel, options) => new Admin.AdminClient(channel).CheckpointAsync(request, options),
            (nodes, deadlineMs) => nodes.CheckpointAsync(request, deadlineMs, cancellationToken),
            isChange: false, _options.Timeout, cancellationToken).ConfigureAwait(false);
        return [.. answer.Replicas.Select(StatusReading.ToCheckpoint)];
    }

    /// <summary>Makes every node examine its machine, its disk and the coordinator. Each writes and syncs a small file a few times.</summary>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>By node id. A node that does not answer is listed with its error.</returns>
    public async Task<IReadOnlyList<NodeExamination>> ExamineAsync(CancellationToken cancellationToken = default)
    {
        var request = new ExamineRequest();
        var answer = await OperateAsync(
            (channel, options) => new Admin.AdminClient(channel).ExamineAsync(request, options),
            (nodes, deadlineMs) => nodes.ExamineAsync(request, deadlineMs, cancellationToken),
            isChange: false, _options.Timeout, cancellationToken).ConfigureAwait(false);
        return [.. answer.Nodes.Select(StatusReading.ToExamination)];
    }

    /// <summary>Transfers a shard's leadership to another of its voters.</summary>
    /// <param name="shard">The shard's id.</param>
    /// <param name="toNode">The node that is to lead; 0 means the one that has most of the journal.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>The node that was asked to lead.</returns>
    /// <exception cref="KvException">Reason NOT_TRANSFERRED: the message says why.</exception>
    public async Task<uint> TransferAsync(uint shard, uint toNode = 0, CancellationToken cancellationToken = default)
    {
        var request = new TransferRequest { Shard = shard, ToNode = toNode };
        var answer = await OperateAsync(
            (channel, options) => new Admin.AdminClient(channel).TransferAsync(request, options),
            (nodes, deadlineMs) => nodes.TransferAsync(request, deadlineMs, cancellationToken),
            isChange: true, _options.Timeout, cancellationToken).ConfigureAwait(false);
        return answer.Leader;
    }

    /// <summary>Makes a node transfer every leadership and take none until it is told otherwise or restarted.</summary>
    /// <param name="node">The node's id.</param>
    /// <param name="draining">false if the node may lead again.</param>
    /// <param name="force">Also if a shard has no majority once the node stops.</param>
    /// <param name="cancellationToken">Stops waiting; the node continues to drain.</param>
    /// <exception cref="KvException">Reason NOT_DRAINED: a shard would have no majority without the node; nothing was changed.</exception>
    public async Task<DrainOutcome> DrainAsync(uint node, bool draining = true, bool force = false, CancellationToken cancellationToken = default)
    {
        var request = new DrainRequest { Node = node, Draining = draining, Force = force };
        var answer = await OperateAsync(
            (channel, options) => new Admin.AdminClient(channel).DrainAsync(request, options),
            (nodes, deadlineMs) => nodes.DrainAsync(request, deadlineMs, cancellationToken),
            isChange: true, _options.Timeout, cancellationToken).ConfigureAwait(false);
        return new DrainOutcome((int)answer.GivenAway, answer.Kept.ToDictionary(kept => kept.Shard, kept => kept.Reason));
    }

    /// <summary>Replaces a replica of a shard with a new one under a new id. Completes when the new one has caught up and votes.</summary>
    /// <param name="shard">The shard's id.</param>
    /// <param name="fromNode">The node whose replica is removed for good.</param>
    /// <param name="toNode">The node that gets the new one. If it is the same node, the replica is rebuilt there. 0 only removes the replica, which must be a
    /// learner.</param>
    /// <param name="force">Also if the remaining replicas are not seen to follow closely. Writes of the shard pause while the change is tried.</param>
    /// <param name="cancellationToken">Stops waiting; calling again continues from where it is.</param>
    /// <exception cref="KvException">Reason NOT_REPLACED: the message says why.</exception>
    public async Task ReplaceAsync(uint shard, uint fromNode, uint toNode, bool force = false, CancellationToken cancellationToken = default)
    {
        var request = new ReplaceRequest { Shard = shard, FromNode = fromNode, ToNode = toNode, Force = force };
        await OperateAsync(
            (channel, options) => new Admin.AdminClient(channel).ReplaceAsync(request, options),
            (nodes, deadlineMs) => nodes.ReplaceAsync(request, deadlineMs, cancellationToken),
            isChange: true, _options.Timeout, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>Takes a node's replica of a shard out of service at once. Its node then has a new one built from its peers.</summary>
    /// <param name="shard">The shard's id.</param>
    /// <param name="node">The node's id.</param>
    /// <param name="reason">For logs and status; at most 1,000 characters.</param>
    /// <param name="force">Also if no majority remains. The shard then serves nothing, and what only this replica had cannot be reached.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvException">Reason NOT_QUARANTINED: it is not known that a majority would remain; nothing was changed.</exception>
    public async Task QuarantineAsync(uint shard, uint node, string reason, bool force = false, CancellationToken cancellationToken = default)
    {
        var request = new QuarantineRequest { Shard = shard, Node = node, Reason = reason, Force = force };
        await OperateAsync(
            (channel, options) => new Admin.AdminClient(channel).QuarantineAsync(request, options),
            (nodes, deadlineMs) => nodes.QuarantineAsync(request, deadlineMs, cancellationToken),
            isChange: true, _options.Timeout, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>
    /// Sets where replicas may be placed; one node of the cluster then moves them, one at a time. Without arguments it only returns the settings.
    /// </summary>
    /// <param name="paused">true: none is moved until it is false again.</param>
    /// <param name="leave">Nodes that are to lose all their replicas because they will be removed.</param>
    /// <param name="stay">Nodes that may have replicas again.</param>
    /// <param name="stayUpTo">Of all nodes, those with greater ids leave and the others stay.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvUnavailableException">Too few nodes would stay, or the coordinator does not answer; nothing was changed.</exception>
    public async Task<PlacementStatus> PlaceAsync(
        bool? paused = null, IReadOnlyList<uint>? leave = null, IReadOnlyList<uint>? stay = null, uint? stayUpTo = null, CancellationToken cancellationToken = default)
    {
        var request = new PlaceRequest { Leave = { leave ?? [] }, Stay = { stay ?? [] } };
        if (paused is { } pauses)
            request.Paused = pauses;
        if (stayUpTo is { } last)
            request.StayUpTo = last;
        var answer = await OperateAsync(
            (channel, options) => new Admin.AdminClient(channel).PlaceAsync(request, options),
            (nodes, deadlineMs) => nodes.PlaceAsync(request, deadlineMs, cancellationToken),
            isChange: true, _options.Timeout, cancellationToken).ConfigureAwait(false);
        return new PlacementStatus(answer.Paused, answer.Leaving.ToDictionary(node => node.Node, node => (int)node.Replicas));
    }

    /// <summary>The shard that owns a key, by this client's present shard map; null while no map is known.</summary>
    public async ValueTask<uint?> FindShardAsync(ReadOnlyMemory<byte> key, CancellationToken cancellationToken = default) =>
        await _calls.WaitForMapAsync(_calls.DeadlineFromNow(), cancellationToken).ConfigureAwait(false) ? _calls.Table.Find(key.Span)?.Shard : null;

    /// <summary>Closes all connections. Calls in progress fail.</summary>
    public async ValueTask DisposeAsync()
    {
        await _calls.DisposeAsync().ConfigureAwait(false);
        _channels.Dispose();
    }

    private static TlsConnector ConnectorOf(KvTlsOptions? tls)
    {
        if (tls is null)
            return new TlsConnector(files: null);
        try
        {
            var files = new TlsFiles { AuthorityFile = tls.AuthorityFile, CertificateFile = tls.CertificateFile, KeyFile = tls.KeyFile };
            return new TlsConnector(new CredentialFiles(files, TimeProvider.System), tls.ServerName);
        }
        catch (UnusableFileException failure)
        {
            throw new KvException("TLS_FILE_UNUSABLE", failure.Message, cause: failure);
        }
    }

    /// <summary>Makes an operator call: through one of the routers in gateway mode, otherwise to the nodes themselves.</summary>
    private async Task<TResponse> OperateAsync<TResponse>(
        Func<GrpcChannel, CallOptions, AsyncUnaryCall<TResponse>> atGateway, Func<NodeFanOut, long, Task<TResponse>> atNodes, bool isChange, TimeSpan timeout, CancellationToken cancellationToken)
    {
        var deadlineMs = Environment.TickCount64 + (long)timeout.TotalMilliseconds;
        try
        {
            return _options.Gateway
                ? await AtGatewayAsync(atGateway, isChange, deadlineMs, cancellationToken).ConfigureAwait(false)
                : await atNodes(new NodeFanOut(_calls, _channels), deadlineMs).ConfigureAwait(false);
        }
        catch (RpcException failure)
        {
            throw KvErrors.ToException(failure, cancellationToken);
        }
    }

    private async Task<TResponse> AtGatewayAsync<TResponse>(
        Func<GrpcChannel, CallOptions, AsyncUnaryCall<TResponse>> call, bool isChange, long deadlineMs, CancellationToken cancellationToken)
    {
        while (true)
        {
            if (!_calls.Gateways.TryNext(out var address))
            {
                if (Environment.TickCount64 >= deadlineMs)
                    throw CallStatus.Unavailable($"none of the endpoints can be used: {_calls.Gateways.Failure}").ToRpcException();
                await _calls.Gateways.WaitAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
                continue;
            }
            try
            {
                var options = new CallOptions(deadline: DateTime.UtcNow.AddMilliseconds(Math.Max(1, deadlineMs - Environment.TickCount64)), cancellationToken: cancellationToken);
                return await call(_channels.To(address), options).ConfigureAwait(false);
            }
            catch (RpcException failure) when (failure.StatusCode == StatusCode.Unavailable && failure.GetRpcStatus() is null
                && (!isChange || OperatorCalls.WasNotSent(failure)) && Environment.TickCount64 < deadlineMs && !cancellationToken.IsCancellationRequested)
            {
                // Another gateway may be reachable.
                _calls.Gateways.Pause(address, $"{address}: {failure.Status.Detail}");
            }
            catch (RpcException failure) when (isChange)
            {
                throw OperatorCalls.Judge(failure).ToRpcException();
            }
        }
    }

    private IAsyncEnumerator<ScanPage> Walk(KvScan scan, CancellationToken cancellationToken)
    {
        var request = scan.ToMessage(_seen.ToOptions(scan.Read ?? _options.Read, shard: null));
        return new ScanWalk(_calls, _channels, _options.Timeout).PagesAsync(request, cancellationToken).GetAsyncEnumerator(cancellationToken);
    }

    private async ValueTask<bool> MoveNextAsync(IAsyncEnumerator<ScanPage> pages, CancellationToken cancellationToken)
    {
        try
        {
            if (!await pages.MoveNextAsync().ConfigureAwait(false))
                return false;
            _seen.Raise(pages.Current.Position.ToPosition());
            return true;
        }
        catch (RpcException failure)
        {
            throw KvErrors.ToException(failure, cancellationToken);
        }
    }

    private GetResult ToResult(GetResponse response)
    {
        var position = response.Position.ToPosition();
        _seen.Raise(position);
        var age = response.Position is { HasAgeUs: true } of ? TimeSpan.FromMicroseconds(of.AgeUs) : (TimeSpan?)null;
        return new GetResult(response.Found, response.Value.Memory, response.Etag.ToEtag(), position) { Age = age };
    }

    /// <summary>Reads the fields of a PutResponse, DeleteResponse or WriteResponse, which differ only in <c>existed</c>.</summary>
    private ShardPosition ReadPosition(ByteString response, out bool existed)
    {
        var position = default(ShardPosition);
        existed = false;
        var reader = new WireReader(response.Span);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == DeleteResponse.PositionFieldNumber)
                position = reader.ReadPosition();
            else if (field == DeleteResponse.ExistedFieldNumber)
                existed = reader.ReadBool();
            else
                reader.Skip();
        }
        _seen.Raise(position);
        return position;
    }

    /// <summary>Makes a change and returns the encoded response. If the shard has ended the session meanwhile, another one is used.</summary>
    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    private async ValueTask<ByteString> ChangeAsync(Change change, CancellationToken cancellationToken)
    {
        var deadlineMs = _calls.DeadlineFromNow();
        if (!_options.ExactlyOnce)
            return ResponseOf(await _calls.CallAsync(change.Method, change.Key, change.Encode(), deadlineMs, cancellationToken).ConfigureAwait(false));
        while (true)
        {
            if (!_sessions.TryTake(change.Key.Span, out var ticket))
            {
                (ticket, var error) = await _sessions.TakeAsync(change.Key, deadlineMs, cancellationToken).ConfigureAwait(false);
                if (error is not null)
                    throw KvErrors.ToException(error);
            }
            RoutedReply reply;
            try
            {
                reply = await _calls.CallAsync(change.Method, change.Key, change.Encode(ticket), deadlineMs, cancellationToken, isIdentified: true).ConfigureAwait(false);
            }
            finally
            {
                ticket.Settle();
            }
            if (reply.Error is null || !CallStatus.IsSessionExpired(reply.Error))
                return ResponseOf(reply);
            // No attempt was executed, so the change can be made under a new identity.
            ticket.Sessions.Drop(ticket.Session);
        }
    }

    private ByteString ResponseOf(in RoutedReply reply)
    {
        if (reply.Error is null)
            return reply.Response;
        var failure = KvErrors.ToException(reply.Error);
        if (failure is KvConditionFailedException { Position: var position })
            _seen.Raise(position);
        throw failure;
    }

    /// <summary>A change as its caller passed it: a put by its parts, which needs no message objects, and others as the message.</summary>
    private readonly record struct Change(Method Method, ReadOnlyMemory<byte> Key, ReadOnlyMemory<byte> Value, KvCondition? Condition, IMessage? Message)
    {
        public ByteString Encode()
        {
            if (Message is not null)
                return Message.ToByteString();
            var request = new PutRequest { Key = Key.ToByteString(), Value = Value.ToByteString() };
            if (Condition is not null)
                request.Conditions.Add(Condition.Message);
            return request.ToByteString();
        }

        public ByteString Encode(in RequestTicket ticket) => Message is null
            ? ticket.Encode(Key.Span, Value.Span, Condition)
            : ticket.Encode(Message, Method == Method.Delete ? DeleteRequest.RequestIdFieldNumber : WriteRequest.RequestIdFieldNumber);
    }
}
