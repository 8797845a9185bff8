using System.Runtime.CompilerServices;
using Google.Protobuf;
using Grpc.Core;
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
        Admin = new KvAdmin(_calls.Destinations.OperatorCalls(_calls, _channels), options.Timeout);
    }

    /// <summary>Creates a client whose calls on keys use the given network and clock. Scans and operator calls still use gRPC.</summary>
    internal KvClient(KvClientOptions options, INodeConnector connector, ClientRuntime runtime)
    {
        _options = options;
        _channels = new NodeChannels(ConnectorOf(options.Tls));
        _calls = new CallRouter(options, connector, runtime);
        _sessions = new ClientSessions(_calls);
        Admin = new KvAdmin(_calls.Destinations.OperatorCalls(_calls, _channels), options.Timeout);
    }

    /// <summary>The calls for operators, over the connections of this client.</summary>
    public KvAdmin Admin { get; }

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
        var request = new GetRequest { Key = key.ToByteString(), Read = _seen.ToOptions(read, _calls.Table.Find(key.Span)?.ShardId) };
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

    /// <summary>Applies operations on keys of one shard, under conditions, atomically.</summary>
    /// <exception cref="KvException">Reason SHARDS_DIFFER: the keys belong to several shards; nothing was applied.</exception>
    public async ValueTask<WriteResult> WriteAsync(KvWrite write, CancellationToken cancellationToken = default)
    {
        var response = WriteResponse.Parser.ParseFrom(
            await ChangeAsync(new Change(Method.Write, write.FirstKey, default, null, write.Message), cancellationToken).ConfigureAwait(false));
        var position = response.Position.ToPosition();
        _seen.Raise(position);
        return new WriteResult(
            position,
            (int)response.Deleted,
            [.. response.Results.Select(static result => new OperationResult(result.Etag.ToEtag(), result.HasExisted ? result.Existed : null))]);
    }

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

    /// <summary>
    /// Returns the changes of a range, those of each shard in order and each once, until it is cancelled. It goes on by itself when leaders change and connections break.
    /// </summary>
    /// <exception cref="KvCompactedException">The journal does not reach back to where the watch was to begin, or the reader was too slow.</exception>
    /// <exception cref="KvUnavailableException">No replica of a shard answered for a minute, or at the beginning for <see cref="KvClientOptions.Timeout"/>.</exception>
    /// <exception cref="KvException">Reason LINEAGE_CHANGED: the cluster was restored, and its history does not have the position.</exception>
    public async IAsyncEnumerable<KvWatchMessage> WatchAsync(KvWatch watch, [EnumeratorCancellation] CancellationToken cancellationToken = default)
    {
        var request = watch.ToMessage();
        var positions = new WatchPositions(request);
        var messages = new WatchWalk(_calls, _channels, _options.Timeout).MessagesAsync(request, cancellationToken).GetAsyncEnumerator(cancellationToken);
        await using (messages.ConfigureAwait(false))
        {
            while (await MoveNextAsync(messages, cancellationToken).ConfigureAwait(false))
            {
                var message = messages.Current;
                // One without content only shows that the connection lives.
                if (message.Position is not null || message.Events.Count > 0 || message.Initial)
                    yield return new KvWatchMessage(message.Position.ToPosition(), [.. message.Events.Select(ToEvent)], message.Initial) { Positions = positions.Advance(message) };
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

    private static async ValueTask<bool> MoveNextAsync(IAsyncEnumerator<WatchResponse> messages, CancellationToken cancellationToken)
    {
        try
        {
            return await messages.MoveNextAsync().ConfigureAwait(false);
        }
        catch (RpcException failure)
        {
            throw KvErrors.ToException(failure, cancellationToken);
        }
    }

    private static KvEvent ToEvent(Event message) => new(
        message.Kind switch
        {
            EventKind.Put => KvEventKind.Put,
            EventKind.Delete => KvEventKind.Delete,
            EventKind.DeleteRange => KvEventKind.DeleteRange,
            EventKind.SetAdd => KvEventKind.SetAdd,
            EventKind.SetRemove => KvEventKind.SetRemove,
            EventKind.Touch => KvEventKind.Touch,
            _ => KvEventKind.Unknown,
        },
        message.Reason switch
        {
            EventReason.User => KvEventReason.User,
            EventReason.Expired => KvEventReason.Expired,
            EventReason.SessionEnded => KvEventReason.SessionEnded,
            _ => KvEventReason.Unknown,
        },
        message.Key.Memory,
        message.Etag.ToEtag())
    {
        RangeEnd = message.RangeEnd.Memory,
        Value = message.Value.Memory,
        Member = message.Member.Memory,
        IsPreviousKnown = message.PreviousKnown,
        PreviousEtag = message.PreviousEtag?.ToEtag(),
        PreviousValue = message.PreviousValue.Memory,
    };

    private GetResult ToResult(GetResponse response)
    {
        var position = response.Position.ToPosition();
        _seen.Raise(position);
        var age = response.Position is { HasAgeUs: true } of ? TimeSpan.FromMicroseconds(of.AgeUs) : (TimeSpan?)null;
        return new GetResult(response.Found, response.Value.Memory, response.Etag.ToEtag(), position) { Age = age };
    }

    /// <summary>Reads the fields of a PutResponse or DeleteResponse, which differ only in <c>existed</c>.</summary>
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
