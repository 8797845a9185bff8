using System.Collections.Immutable;
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
public sealed class KvClient : IKvClient, IAsyncDisposable, IDisposable
{
    private static readonly TimeSpan LoadGivesUpAfter = TimeSpan.FromSeconds(30);

    /// <summary>A key of the shard with the first keys. It need not exist.</summary>
    private static readonly ReadOnlyMemory<byte> PingKey = new byte[1];

    private readonly KvClientOptions _options;
    private readonly CallRouter _router;
    private readonly ClientCalls _calls;
    private readonly FailedConditions _failedConditions;
    private readonly NodeChannels _channels;
    private readonly IScanSource _scans;
    private readonly IWatchSource _watches;

    // Begun once, by whoever disposes the client first.
    private readonly Lazy<Task> _closed;

    /// <summary>Creates a client that learns the cluster from this address of a router or a node, "http://host:port".</summary>
    public KvClient(string endpoint)
        : this(new KvClientOptions { Endpoints = [endpoint ?? throw new ArgumentNullException(nameof(endpoint))] })
    {
    }

    /// <summary>Creates a client with these options, as they are now. It connects with the first call.</summary>
    /// <exception cref="ArgumentException">The options are invalid; the message lists every mistake.</exception>
    /// <exception cref="KvException">A file of <see cref="KvClientOptions.Tls"/> is not usable; the message names it and says why.</exception>
    public KvClient(KvClientOptions options)
    {
        ArgumentNullException.ThrowIfNull(options);
        _options = options = options.Copy();
        options.Validate();
        _closed = new Lazy<Task>(CloseAsync);
        var connector = ConnectorOf(options.Tls);
        var cluster = new ExpectedCluster();
        _channels = new NodeChannels(connector, cluster) { Authorization = options.Authorization };
        (_scans, _watches) = (_channels, _channels);
        var calls = new GrpcConnector(connector, options.CallsInFlightMax, options.Log) { Cluster = cluster, Authorization = options.Authorization };
        _router = new CallRouter(options, calls, ClientRuntime.Machine);
        cluster.ReadFrom(_router.Table);
        _calls = new ClientCalls(options, _router);
        _failedConditions = new FailedConditions(_calls);
        (Sets, Sessions) = (new KvSets(_calls), new KvSessions(_calls));
        Admin = new KvAdmin(_router.Destinations.OperatorCalls(_router, _channels), options.Timeout);
    }

    /// <summary>
    /// Creates a client whose calls on keys use the given network and clock, and so do its scans and watches if the network has them. Operators' calls use
    /// gRPC.
    /// </summary>
    internal KvClient(KvClientOptions options, INodeConnector connector, ClientRuntime runtime)
    {
        _options = options;
        _closed = new Lazy<Task>(CloseAsync);
        var cluster = new ExpectedCluster();
        _channels = new NodeChannels(ConnectorOf(options.Tls), cluster) { Authorization = options.Authorization };
        _scans = connector as IScanSource ?? _channels;
        _watches = connector as IWatchSource ?? _channels;
        _router = new CallRouter(options, connector, runtime);
        cluster.ReadFrom(_router.Table);
        _calls = new ClientCalls(options, _router);
        _failedConditions = new FailedConditions(_calls);
        (Sets, Sessions) = (new KvSets(_calls), new KvSessions(_calls));
        Admin = new KvAdmin(_router.Destinations.OperatorCalls(_router, _channels), options.Timeout);
    }

    /// <summary>Has the coordinator's records rebuilt from the nodes, through the first endpoint.</summary>
    /// <exception cref="KvException">Reason NOT_RECOVERED: the message says why.</exception>
    internal async Task<Admin.V1.RecoverResponse> RecoverCoordinatorAsync(
        Admin.V1.RecoverRequest request, TimeSpan timeout, CancellationToken cancellationToken)
    {
        try
        {
            return await new RecoverCall(_options.EndpointsInUse[0], _router, _channels)
                .AskAsync(request, Environment.TickCount64 + (long)timeout.TotalMilliseconds, cancellationToken).ConfigureAwait(false);
        }
        catch (RpcException failure)
        {
            throw KvErrors.ToException(failure, cancellationToken);
        }
    }

    /// <summary>Why a file of these options is not usable; null if all are.</summary>
    internal static string? TlsFailure(KvTlsOptions? tls)
    {
        try
        {
            _ = ConnectorOf(tls);
            return null;
        }
        catch (KvException failure)
        {
            return failure.Message;
        }
    }

    /// <summary>The calls for sets.</summary>
    public KvSets Sets { get; }

    /// <summary>The calls for sessions that own keys.</summary>
    public KvSessions Sessions { get; }

    IKvSets IKvClient.Sets => Sets;

    IKvSessions IKvClient.Sessions => Sessions;

    /// <summary>The calls for operators, over the connections of this client.</summary>
    public KvAdmin Admin { get; }

    /// <summary>Returns the value of a key. By default it reflects every change acknowledged before the call.</summary>
    /// <param name="key">1 to 2,048 bytes.</param>
    /// <param name="options">
    /// How up to date the value must be, and what else is special about the read; null means the mode <see cref="KvClientOptions.Read"/>. A
    /// <see cref="KvReadMode"/> can be passed as it is.
    /// </param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvUnavailableException">No replica that may serve the read answered in time; the reason says why.</exception>
    /// <exception cref="KvInvalidRequestException">The key is empty or too long.</exception>
    /// <exception cref="KvLineageChangedException">Of a <see cref="KvReadMode.Session"/> read: the cluster's data was restored or replaced.</exception>
    /// <exception cref="KvException">It failed for another reason of <see cref="KvReasons"/>.</exception>
    public ValueTask<GetResult> GetAsync(KvKey key, KvGetOptions? options = null, CancellationToken cancellationToken = default) =>
        _calls.GetAsync(key, options?.Read, options is { WithLife: true }, _calls.TermsOf(options), cancellationToken);

    /// <summary>
    /// Returns the key that is nearest to another one, with its value. If the nearest key is in another shard than the requested one, each shard is read at its
    /// own moment.
    /// </summary>
    /// <param name="key">1 to 2,048 bytes. It need not exist.</param>
    /// <param name="nearest">Which key is meant.</param>
    /// <param name="within">Only a key with this prefix is found; empty means any.</param>
    /// <param name="options">What is special about the read; null means the mode <see cref="KvClientOptions.Read"/>.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvUnavailableException">No replica that may serve the read answered in time; the reason says why.</exception>
    /// <exception cref="KvInvalidRequestException">The key is empty or too long.</exception>
    /// <exception cref="KvLineageChangedException">Of a <see cref="KvReadMode.Session"/> read: the cluster's data was restored or replaced.</exception>
    /// <exception cref="KvException">It failed for another reason of <see cref="KvReasons"/>.</exception>
    public async ValueTask<GetResult> GetNearestAsync(
        KvKey key, KvNearest nearest, KvKey within = default, KvGetOptions? options = null, CancellationToken cancellationToken = default)
    {
        var request = new GetRequest
        {
            Key = key.ToByteString(),
            Nearest = (Nearest)nearest,
            Within = within.ToByteString(),
            Read = _calls.Seen.ToOptions(options?.Read ?? _options.Read, shard: null),
            WithLife = options is { WithLife: true },
        };
        var (response, error) = await RangeCalls.GetNearestAsync(_router, request, _calls.TermsOf(options), cancellationToken).ConfigureAwait(false);
        return error is null ? ToResult(response!) : throw _calls.ToException(error);
    }

    /// <summary>
    /// Returns the values of many keys, in the order of <paramref name="keys"/>. Keys of one shard are read from one snapshot, keys of different shards at
    /// different moments.
    /// </summary>
    /// <param name="keys">Each 1 to 2,048 bytes.</param>
    /// <param name="options">
    /// How up to date the values must be, and what else is special about the read; null means the mode <see cref="KvClientOptions.Read"/>.
    /// </param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvUnavailableException">No replica that may serve the read answered in time; the reason says why.</exception>
    /// <exception cref="KvInvalidRequestException">A key is empty or too long, or there are more than 10,000.</exception>
    /// <exception cref="KvLineageChangedException">Of a <see cref="KvReadMode.Session"/> read: the cluster's data was restored or replaced.</exception>
    /// <exception cref="KvException">It failed for another reason of <see cref="KvReasons"/>.</exception>
    public async ValueTask<IReadOnlyList<GetResult>> GetManyAsync(
        IReadOnlyList<KvKey> keys, KvGetOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(keys);
        var messages = await ManyKeys.GetAsync(
            _router, [.. keys.Select(static key => key.ToByteString())],
            _calls.Seen.ToOptions(options?.Read ?? _options.Read, shard: null), _calls.TermsOf(options), cancellationToken,
            withLife: options is { WithLife: true }).ConfigureAwait(false);
        if (messages.Error is { } error)
            throw _calls.ToException(error);
        return [.. messages.Entries.Select(ToResult)];
    }

    /// <summary>
    /// Makes this client's <see cref="KvReadMode.Session"/> reads reflect another position too, for example of another client's answer. Positions of this
    /// client's own answers are observed without this call.
    /// </summary>
    public void Observe(ShardPosition position) => _calls.Seen.Raise(position);

    /// <summary>
    /// Sets a key. Completes when the change is durable on a majority of the shard's replicas. The new value has no expiry and no owner, also if the old one
    /// had, unless the options give it one or keep them.
    /// </summary>
    /// <param name="key">1 to 2,048 bytes; with <see cref="KvPutOptions.Sequence"/> the prefix of the new key.</param>
    /// <param name="value">Up to 8 MiB.</param>
    /// <param name="options">What is special about the put; null: nothing. A <see cref="KvCondition"/> can be passed as it is.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvConditionFailedException">The condition did not hold; nothing was applied.</exception>
    /// <exception cref="KvInvalidRequestException">The key is empty or too long, or the value too large; nothing was applied.</exception>
    /// <exception cref="KvNoOwnerException">The session of <see cref="KvPutOptions.Owner"/> has ended, or is of another shard; nothing was applied.</exception>
    /// <exception cref="KvUnavailableException">There was no answer in time, and nothing was applied; the reason says why.</exception>
    /// <exception cref="KvOutcomeUnknownException">The answer was lost, so it is unknown whether the change was applied.</exception>
    /// <exception cref="KvLineageChangedException">The cluster's data was restored or replaced meanwhile.</exception>
    /// <exception cref="KvException">It was refused for another reason of <see cref="KvReasons"/>; nothing was applied.</exception>
    public ValueTask<PutResult> PutAsync(KvKey key, KvValue value, KvPutOptions? options = null, CancellationToken cancellationToken = default) =>
        options is { HasOnlyCondition: false }
            ? PutMessageAsync(key, value, options, cancellationToken)
            : PutPartsAsync(new ClientCalls.Change(Method.Put, key, value, options?.Condition, null), _calls.TermsOf(options), cancellationToken);

    // Most puts, without message objects.
    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    private async ValueTask<PutResult> PutPartsAsync(ClientCalls.Change change, CallTerms terms, CancellationToken cancellationToken) =>
        new(change.Key, ReadPosition(_calls.ResponseOf(await _calls.SendAsync(change, terms, cancellationToken).ConfigureAwait(false)), out _));

    private async ValueTask<PutResult> PutMessageAsync(KvKey key, KvValue value, KvPutOptions options, CancellationToken cancellationToken)
    {
        var response = await _calls.ChangeAsync(
            Method.Put, key, MessageOf(key, value, options), _calls.TermsOf(options), cancellationToken).ConfigureAwait(false);
        return ToPutResult(key, response);
    }

    private static PutRequest MessageOf(KvKey key, KvValue value, KvPutOptions options)
    {
        var request = new PutRequest
        {
            Key = key.ToByteString(),
            Value = value.ToByteString(),
            Sequence = options.Sequence,
            KeepExpiry = options.KeepExpiry,
            KeepOwner = options.KeepOwner,
        };
        if (options.TimeToLive is { } timeToLive)
            request.TtlMs = KvPutOptions.Milliseconds(timeToLive);
        if (options.Owner is { } owner)
            request.Owner = owner.Id.ToByteString();
        if (options.Condition is { } condition)
            request.Conditions.Add(condition.Message);
        return request;
    }

    private PutResult ToPutResult(KvKey key, ByteString encoded)
    {
        var response = PutResponse.Parser.ParseFrom(encoded);
        return new PutResult(response.Key.IsEmpty ? key : new KvKey(response.Key.Memory), _calls.See(response.Position));
    }

    /// <summary>Sets a key if a condition holds. That it does not is a result, which says what the key has, and no exception.</summary>
    /// <param name="key">1 to 2,048 bytes; with <see cref="KvPutOptions.Sequence"/> the prefix of the new key.</param>
    /// <param name="value">Up to 8 MiB.</param>
    /// <param name="options">The condition, and what else is special about the put. A <see cref="KvCondition"/> can be passed as it is.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvInvalidRequestException">The key is empty or too long, or the value too large; nothing was applied.</exception>
    /// <exception cref="KvNoOwnerException">The session of <see cref="KvPutOptions.Owner"/> has ended, or is of another shard; nothing was applied.</exception>
    /// <exception cref="KvUnavailableException">There was no answer in time, and nothing was applied; the reason says why.</exception>
    /// <exception cref="KvOutcomeUnknownException">The answer was lost, so it is unknown whether the change was applied.</exception>
    /// <exception cref="KvLineageChangedException">The cluster's data was restored or replaced meanwhile.</exception>
    /// <exception cref="KvException">It was refused for another reason of <see cref="KvReasons"/>; nothing was applied.</exception>
    public ValueTask<KvTryResult<PutResult>> TryPutAsync(KvKey key, KvValue value, KvPutOptions options, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(options);
        var change = options.HasOnlyCondition
            ? new ClientCalls.Change(Method.Put, key, value, options.Condition, null)
            : new ClientCalls.Change(Method.Put, key, default, null, MessageOf(key, value, options));
        return TryAsync(change, options, response => ToPutResult(key, response), cancellationToken);
    }

    /// <summary>Removes a key. It is not an error if the key does not exist.</summary>
    /// <param name="key">1 to 2,048 bytes.</param>
    /// <param name="options">What is special about the delete; null: nothing. A <see cref="KvCondition"/> can be passed as it is.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvConditionFailedException">The condition did not hold; nothing was applied.</exception>
    /// <exception cref="KvInvalidRequestException">The key is empty or too long; nothing was applied.</exception>
    /// <exception cref="KvUnavailableException">There was no answer in time, and nothing was applied; the reason says why.</exception>
    /// <exception cref="KvOutcomeUnknownException">The answer was lost, so it is unknown whether the change was applied.</exception>
    /// <exception cref="KvLineageChangedException">The cluster's data was restored or replaced meanwhile.</exception>
    /// <exception cref="KvException">It was refused for another reason of <see cref="KvReasons"/>; nothing was applied.</exception>
    public async ValueTask<DeleteResult> DeleteAsync(KvKey key, KvChangeOptions? options = null, CancellationToken cancellationToken = default)
    {
        var response = await _calls.ChangeAsync(
            Method.Delete, key, DeleteOf(key, options), _calls.TermsOf(options), cancellationToken).ConfigureAwait(false);
        return ToDeleteResult(response);
    }

    /// <summary>Removes a key if a condition holds. That it does not is a result, which says what the key has, and no exception.</summary>
    /// <param name="key">1 to 2,048 bytes.</param>
    /// <param name="options">The condition, and what else is special about the delete. A <see cref="KvCondition"/> can be passed as it is.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvInvalidRequestException">The key is empty or too long; nothing was applied.</exception>
    /// <exception cref="KvUnavailableException">There was no answer in time, and nothing was applied; the reason says why.</exception>
    /// <exception cref="KvOutcomeUnknownException">The answer was lost, so it is unknown whether the change was applied.</exception>
    /// <exception cref="KvLineageChangedException">The cluster's data was restored or replaced meanwhile.</exception>
    /// <exception cref="KvException">It was refused for another reason of <see cref="KvReasons"/>; nothing was applied.</exception>
    public ValueTask<KvTryResult<DeleteResult>> TryDeleteAsync(KvKey key, KvChangeOptions options, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(options);
        return TryAsync(new ClientCalls.Change(Method.Delete, key, default, null, DeleteOf(key, options)), options, ToDeleteResult, cancellationToken);
    }

    private static DeleteRequest DeleteOf(KvKey key, KvChangeOptions? options)
    {
        var request = new DeleteRequest { Key = key.ToByteString() };
        if (options?.Condition is { } condition)
            request.Conditions.Add(condition.Message);
        return request;
    }

    private DeleteResult ToDeleteResult(ByteString response)
    {
        var position = ReadPosition(response, out var existed);
        return new DeleteResult(existed, position);
    }

    /// <summary>
    /// Removes all keys of a range, at about the cost of one per shard. In each shard they go at one moment, unless it has very many large values; in different
    /// shards at different moments.
    /// </summary>
    /// <param name="range">The keys. A range of all keys has to say so (<see cref="KvRange.All"/>).</param>
    /// <param name="options">What is special about the call; null: nothing. Each shard has the whole timeout.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvException">Some keys of the range may have been removed before.</exception>
    /// <exception cref="KvInvalidRequestException">A bound of the range is too long, or it has all keys and does not say so; nothing was removed.</exception>
    /// <exception cref="KvUnavailableException">There was no answer in time. Some keys of the range may have been removed before.</exception>
    /// <exception cref="KvOutcomeUnknownException">The answer was lost, so it is unknown whether the change was applied.</exception>
    /// <exception cref="KvLineageChangedException">The cluster's data was restored or replaced meanwhile.</exception>
    public async ValueTask<DeleteRangeResult> DeleteRangeAsync(
        KvRange range, KvCallOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(range);
        var request = new DeleteRangeRequest
        {
            Start = range.Start.ToByteString(), End = range.End.ToByteString(), Prefix = range.Prefix.ToByteString(), All = range.All
        };
        var deleted = 0ul;
        while (true)
        {
            var first = KeyBounds.Of(request.Start.Memory, request.End.Memory, request.Prefix.Memory).Lower;
            var response = DeleteRangeResponse.Parser.ParseFrom(
                await DeleteRangeAsync(first, request, _calls.TermsOf(options), cancellationToken).ConfigureAwait(false));
            var position = _calls.See(response.Position);
            deleted += response.Deleted;
            if (!response.HasNextStart)
                return new DeleteRangeResult(deleted, position);
            request.Start = response.NextStart;
        }
    }

    // A router removes a range of several shards only without an identity, which belongs to one shard.
    private async ValueTask<Google.Protobuf.ByteString> DeleteRangeAsync(
        ReadOnlyMemory<byte> first, DeleteRangeRequest request, CallTerms terms, CancellationToken cancellationToken)
    {
        try
        {
            return await _calls.ChangeAsync(Method.DeleteRange, first, request, terms, cancellationToken).ConfigureAwait(false);
        }
        catch (KvShardsDifferException) when (!_router.Destinations.NeedMap)
        {
            return await _calls.ChangeUnidentifiedAsync(Method.DeleteRange, first, request, terms, cancellationToken).ConfigureAwait(false);
        }
    }

    /// <summary>Adds to the number that is the value of a key, in decimal text. An absent key counts as 0.</summary>
    /// <param name="key">1 to 2,048 bytes.</param>
    /// <param name="by">What is added; negative to subtract.</param>
    /// <param name="options">What is special about the increment; null: nothing. A <see cref="KvCondition"/> can be passed as it is.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvException">Reason NOT_A_NUMBER or NUMBER_OVERFLOW: nothing was changed.</exception>
    /// <exception cref="KvConditionFailedException">The condition did not hold; nothing was applied.</exception>
    /// <exception cref="KvInvalidRequestException">The key is empty or too long; nothing was applied.</exception>
    /// <exception cref="KvUnavailableException">There was no answer in time, and nothing was applied; the reason says why.</exception>
    /// <exception cref="KvOutcomeUnknownException">The answer was lost, so it is unknown whether the change was applied.</exception>
    /// <exception cref="KvLineageChangedException">The cluster's data was restored or replaced meanwhile.</exception>
    public async ValueTask<IncrementResult> IncrementAsync(
        KvKey key, long by = 1, KvChangeOptions? options = null, CancellationToken cancellationToken = default)
    {
        var response = await _calls.ChangeAsync(
            Method.Increment, key, IncrementOf(key, by, options), _calls.TermsOf(options), cancellationToken).ConfigureAwait(false);
        return ToIncrementResult(response);
    }

    /// <summary>
    /// Adds to the number that is the value of a key if a condition holds. That it does not is a result, which says what the key has, and no exception.
    /// </summary>
    /// <param name="key">1 to 2,048 bytes.</param>
    /// <param name="by">What is added; negative to subtract.</param>
    /// <param name="options">The condition, and what else is special about the increment. A <see cref="KvCondition"/> can be passed as it is.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvException">Reason NOT_A_NUMBER or NUMBER_OVERFLOW: nothing was changed.</exception>
    /// <exception cref="KvInvalidRequestException">The key is empty or too long; nothing was applied.</exception>
    /// <exception cref="KvUnavailableException">There was no answer in time, and nothing was applied; the reason says why.</exception>
    /// <exception cref="KvOutcomeUnknownException">The answer was lost, so it is unknown whether the change was applied.</exception>
    /// <exception cref="KvLineageChangedException">The cluster's data was restored or replaced meanwhile.</exception>
    public ValueTask<KvTryResult<IncrementResult>> TryIncrementAsync(
        KvKey key, long by, KvChangeOptions options, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(options);
        return TryAsync(
            new ClientCalls.Change(Method.Increment, key, default, null, IncrementOf(key, by, options)), options, ToIncrementResult, cancellationToken);
    }

    private static IncrementRequest IncrementOf(KvKey key, long by, KvChangeOptions? options)
    {
        var request = new IncrementRequest { Key = key.ToByteString(), By = by };
        if (options?.Condition is { } condition)
            request.Conditions.Add(condition.Message);
        return request;
    }

    private IncrementResult ToIncrementResult(ByteString encoded)
    {
        var response = IncrementResponse.Parser.ParseFrom(encoded);
        return new IncrementResult(response.Number, _calls.See(response.Position));
    }

    // Makes a change on a condition of which it is no failure that it does not hold.
    private async ValueTask<KvTryResult<T>> TryAsync<T>(
        ClientCalls.Change change, KvChangeOptions options, Func<ByteString, T> toResult, CancellationToken cancellationToken)
    {
        var terms = _calls.TermsOf(options);
        var reply = await _calls.SendAsync(change, terms, cancellationToken).ConfigureAwait(false);
        if (reply.Error is not { } error)
            return new KvTryResult<T>(toResult(reply.Response));
        Condition[] conditions = options.Condition is { } condition ? [condition.Message] : [];
        return new KvTryResult<T>(await _failedConditions.OfAsync(
            error, new KvKey(change.Key), conditions, options.WithPresentValue, terms, cancellationToken).ConfigureAwait(false));
    }

    /// <summary>Sets when a key expires, without sending its value. The key keeps its etag.</summary>
    /// <param name="key">The key. If it does not exist, nothing changes.</param>
    /// <param name="timeToLive">How long it lives from now; null means until it is deleted.</param>
    /// <param name="options">What is special about the touch; null: nothing. A <see cref="KvCondition"/> can be passed as it is.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvConditionFailedException">The condition did not hold; nothing was applied.</exception>
    /// <exception cref="KvInvalidRequestException">The key is empty or too long; nothing was applied.</exception>
    /// <exception cref="KvUnavailableException">There was no answer in time, and nothing was applied; the reason says why.</exception>
    /// <exception cref="KvOutcomeUnknownException">The answer was lost, so it is unknown whether the change was applied.</exception>
    /// <exception cref="KvLineageChangedException">The cluster's data was restored or replaced meanwhile.</exception>
    /// <exception cref="KvException">It was refused for another reason of <see cref="KvReasons"/>; nothing was applied.</exception>
    public async ValueTask<TouchResult> TouchAsync(
        KvKey key, TimeSpan? timeToLive, KvChangeOptions? options = null, CancellationToken cancellationToken = default)
    {
        var request = new TouchRequest { Key = key.ToByteString() };
        if (timeToLive is { } given)
            request.TtlMs = KvPutOptions.Milliseconds(given);
        if (options?.Condition is { } condition)
            request.Conditions.Add(condition.Message);
        var response = TouchResponse.Parser.ParseFrom(
            await _calls.ChangeAsync(Method.Touch, key, request, _calls.TermsOf(options), cancellationToken).ConfigureAwait(false));
        return new TouchResult(response.Existed, _calls.See(response.Position));
    }

    /// <summary>Evaluates conditions on keys of one shard and applies one of two lists of operations, atomically.</summary>
    /// <param name="transaction">The conditions and operations.</param>
    /// <param name="options">What is special about the call; null: nothing.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvShardsDifferException">The keys belong to several shards; nothing was applied.</exception>
    /// <exception cref="KvInvalidRequestException">There are too many operations, or they are too large or invalid; nothing was applied.</exception>
    /// <exception cref="KvNoOwnerException">The session of <see cref="KvPutOptions.Owner"/> has ended, or is of another shard; nothing was applied.</exception>
    /// <exception cref="KvUnavailableException">There was no answer in time, and nothing was applied; the reason says why.</exception>
    /// <exception cref="KvOutcomeUnknownException">The answer was lost, so it is unknown whether the change was applied.</exception>
    /// <exception cref="KvLineageChangedException">The cluster's data was restored or replaced meanwhile.</exception>
    /// <exception cref="KvException">It was refused for another reason of <see cref="KvReasons"/>; nothing was applied.</exception>
    public async ValueTask<TransactResult> TransactAsync(
        KvTransaction transaction, KvCallOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(transaction);
        var onlyRead = transaction.Then.OnlyRead && transaction.Else.OnlyRead;
        var reply = await SendAsync(Method.Transact, transaction.Message, onlyRead, _calls.TermsOf(options), cancellationToken).ConfigureAwait(false);
        var response = TransactResponse.Parser.ParseFrom(_calls.ResponseOf(reply));
        return new TransactResult(
            response.Succeeded, response.HasFailedCondition ? (int)response.FailedCondition : null,
            [.. response.Results.Select(OperationResult.Of)], _calls.See(response.Position));
    }

    /// <summary>Applies operations on keys of one shard, under conditions, atomically.</summary>
    /// <param name="write">The conditions and operations.</param>
    /// <param name="options">What is special about the call; null: nothing.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvConditionFailedException">A condition did not hold; nothing was applied.</exception>
    /// <exception cref="KvShardsDifferException">The keys belong to several shards; nothing was applied.</exception>
    /// <exception cref="KvInvalidRequestException">There are too many operations, or they are too large or invalid; nothing was applied.</exception>
    /// <exception cref="KvNoOwnerException">The session of <see cref="KvPutOptions.Owner"/> has ended, or is of another shard; nothing was applied.</exception>
    /// <exception cref="KvUnavailableException">There was no answer in time, and nothing was applied; the reason says why.</exception>
    /// <exception cref="KvOutcomeUnknownException">The answer was lost, so it is unknown whether the change was applied.</exception>
    /// <exception cref="KvLineageChangedException">The cluster's data was restored or replaced meanwhile.</exception>
    /// <exception cref="KvException">It was refused for another reason of <see cref="KvReasons"/>; nothing was applied.</exception>
    public async ValueTask<WriteResult> WriteAsync(KvWrite write, KvCallOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(write);
        var reply = await SendAsync(Method.Write, write.Message, write.Operations.OnlyRead, _calls.TermsOf(options), cancellationToken).ConfigureAwait(false);
        return ToWriteResult(_calls.ResponseOf(reply));
    }

    /// <summary>
    /// Applies operations on keys of one shard if all conditions hold, atomically. That one does not is a result, which says what its key has, and no
    /// exception.
    /// </summary>
    /// <param name="write">The conditions and operations.</param>
    /// <param name="options">What is special about the call; null: nothing.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvShardsDifferException">The keys belong to several shards; nothing was applied.</exception>
    /// <exception cref="KvInvalidRequestException">There are too many operations, or they are too large or invalid; nothing was applied.</exception>
    /// <exception cref="KvNoOwnerException">The session of <see cref="KvPutOptions.Owner"/> has ended, or is of another shard; nothing was applied.</exception>
    /// <exception cref="KvUnavailableException">There was no answer in time, and nothing was applied; the reason says why.</exception>
    /// <exception cref="KvOutcomeUnknownException">The answer was lost, so it is unknown whether the change was applied.</exception>
    /// <exception cref="KvLineageChangedException">The cluster's data was restored or replaced meanwhile.</exception>
    /// <exception cref="KvException">It was refused for another reason of <see cref="KvReasons"/>; nothing was applied.</exception>
    public async ValueTask<KvTryResult<WriteResult>> TryWriteAsync(
        KvWrite write, KvCallOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(write);
        var terms = _calls.TermsOf(options);
        var reply = await SendAsync(Method.Write, write.Message, write.Operations.OnlyRead, terms, cancellationToken).ConfigureAwait(false);
        return reply.Error is { } error
            ? new KvTryResult<WriteResult>(await _failedConditions.OfAsync(
                error, default, write.Message.Conditions, write.ReturnsPresentValue, terms, cancellationToken).ConfigureAwait(false))
            : new KvTryResult<WriteResult>(ToWriteResult(reply.Response));
    }

    private WriteResult ToWriteResult(ByteString encoded)
    {
        var response = WriteResponse.Parser.ParseFrom(encoded);
        return new WriteResult(_calls.See(response.Position), (long)response.Deleted, [.. response.Results.Select(OperationResult.Of)]);
    }

    // A list of operations, which is routed by a key within it.
    private ValueTask<RoutedReply> SendAsync(
        Method method, IMessage request, bool onlyRead, CallTerms terms, CancellationToken cancellationToken) => onlyRead
            ? _calls.SendReadAsync(method, request, terms, cancellationToken)
            : _calls.SendAsync(new ClientCalls.Change(method, request.ToByteString()), terms, cancellationToken);

    /// <summary>
    /// Returns entries in key order, from one snapshot for each shard. If a leader changes during the scan, or its reader pauses for long, it continues by
    /// itself; the rest of that shard is then from another snapshot, in most modes a newer one.
    /// </summary>
    /// <exception cref="KvUnavailableException">Nothing came for <see cref="KvScan.Timeout"/>. The message has the last key that was
    /// returned.</exception>
    /// <exception cref="KvSnapshotTooOldException">See <see cref="KvScan.OneSnapshot"/>.</exception>
    /// <exception cref="KvInvalidRequestException">A bound of the range is too long.</exception>
    /// <exception cref="KvException">It failed for another reason of <see cref="KvReasons"/>.</exception>
    public IAsyncEnumerable<KvEntry> ScanAsync(KvScan scan, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(scan);
        _router.ThrowIfClosed();
        return EntriesAsync(scan, cancellationToken);
    }

    /// <summary>
    /// Returns the changes of a range, those of each shard in order and each once, until it is cancelled. It goes on by itself when leaders change and
    /// connections break.
    /// </summary>
    /// <exception cref="KvCompactedException">The journal does not reach back to where the watch was to begin, or the reader was too slow.</exception>
    /// <exception cref="KvUnavailableException">No replica of a shard answered for a minute, or at the beginning for
    /// <see cref="KvClientOptions.Timeout"/>.</exception>
    /// <exception cref="KvLineageChangedException">The cluster was restored, and its history does not have the position.</exception>
    /// <exception cref="KvInvalidRequestException">The range has no room for a key, or the position to go on from is none.</exception>
    /// <exception cref="KvException">It failed for another reason of <see cref="KvReasons"/>.</exception>
    public IAsyncEnumerable<KvWatchMessage> WatchAsync(KvWatch watch, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(watch);
        _router.ThrowIfClosed();
        return MessagesAsync(watch, cancellationToken);
    }

    private async IAsyncEnumerable<KvWatchMessage> MessagesAsync(KvWatch watch, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        var request = watch.ToMessage();
        var positions = new WatchPositions(request);
        var events = new FittedEvents(watch);
        using var ended = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken, _router.Closing);
        var messages = new WatchWalk(_router, _watches, _options.Timeout).MessagesAsync(request, ended.Token).GetAsyncEnumerator(ended.Token);
        await using (messages.ConfigureAwait(false))
        {
            while (await NextAsync(messages, lastKey: default, cancellationToken).ConfigureAwait(false))
            {
                var message = messages.Current.Decode();
                // A message without content only shows that the connection lives.
                if (message.Position is not null || message.Events.Count > 0 || message.Initial || message.Forget is not null)
                    yield return ToMessage(message, positions.Advance(message), events);
            }
        }
    }

    /// <summary>
    /// Returns one page of a range, from as many shards as it takes to fill it. All entries of a shard are from one snapshot, also those of the next page as
    /// long as its node keeps that (<see cref="KvPage.SnapshotKeptFor"/>).
    /// </summary>
    /// <param name="list">The range, which must be the same for each page, and so must the order and whether values are returned; and the limits of a
    /// page.</param>
    /// <param name="pageToken">That of the page before (<see cref="KvPage.NextToken"/>); null or empty for the first page.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvSnapshotTooOldException">The snapshot of the page before is not kept any more. See <see cref="KvList.NewerSnapshots"/>.</exception>
    /// <exception cref="KvInvalidRequestException">A bound of the range is too long, the page token is damaged or of another listing, or a limit too
    /// large.</exception>
    /// <exception cref="KvUnavailableException">No replica that may serve the read answered in time; the reason says why.</exception>
    /// <exception cref="KvLineageChangedException">Of a <see cref="KvReadMode.Session"/> read: the cluster's data was restored or replaced.</exception>
    /// <exception cref="KvException">It failed for another reason of <see cref="KvReasons"/>.</exception>
    public async ValueTask<KvPage> ListAsync(KvList list, string? pageToken = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(list);
        var page = new FilledPage(list.ToMessage(_calls.Seen.ToOptions(list.Read ?? _options.Read, shard: null), PageToken.Parse(pageToken)));
        var terms = _calls.TermsOf(list.Call);
        while (true)
        {
            var response = ListResponse.Parser.ParseFrom(
                await _calls.ReadAsync(Method.List, RouteKeys.Of(page.Rest), page.Rest, read: null, terms, cancellationToken).ConfigureAwait(false));
            if (page.Add(response, _calls.See(response.Position)) is { } whole)
                return whole;
        }
    }

    /// <summary>Counts the keys with a prefix, without reading them. Each shard is counted at its own moment.</summary>
    /// <param name="prefix">Empty means all keys.</param>
    /// <param name="options">
    /// What is special about the read; null means the mode <see cref="KvClientOptions.Read"/>. A <see cref="KvReadMode"/> can be passed as it is.
    /// </param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvUnavailableException">No replica that may serve the read answered in time; the reason says why.</exception>
    /// <exception cref="KvInvalidRequestException">A bound of the range is too long.</exception>
    /// <exception cref="KvLineageChangedException">Of a <see cref="KvReadMode.Session"/> read: the cluster's data was restored or replaced.</exception>
    /// <exception cref="KvException">It failed for another reason of <see cref="KvReasons"/>.</exception>
    public Task<long> CountAsync(KvKey prefix, KvReadOptions? options = null, CancellationToken cancellationToken = default) =>
        CountRangeAsync(new KvRange { Prefix = prefix }, options, cancellationToken);

    /// <summary>Counts the keys of a range, without reading them. Each shard is counted at its own moment.</summary>
    /// <param name="range">The range.</param>
    /// <param name="options">
    /// What is special about the read; null means the mode <see cref="KvClientOptions.Read"/>. A <see cref="KvReadMode"/> can be passed as it is.
    /// </param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvUnavailableException">No replica that may serve the read answered in time; the reason says why.</exception>
    /// <exception cref="KvInvalidRequestException">A bound of the range is too long.</exception>
    /// <exception cref="KvLineageChangedException">Of a <see cref="KvReadMode.Session"/> read: the cluster's data was restored or replaced.</exception>
    /// <exception cref="KvException">It failed for another reason of <see cref="KvReasons"/>.</exception>
    public async Task<long> CountRangeAsync(KvRange range, KvReadOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(range);
        var request = new CountRequest
        {
            Start = range.Start.ToByteString(),
            End = range.End.ToByteString(),
            Prefix = range.Prefix.ToByteString(),
            Read = _calls.Seen.ToOptions(options?.Read ?? _options.Read, shard: null),
        };
        var (response, error) = await RangeCalls.CountAsync(_router, request, _calls.TermsOf(options), cancellationToken).ConfigureAwait(false);
        if (error is not null)
            throw _calls.ToException(error);
        _calls.See(response!.Position);
        return (long)response.Count;
    }

    /// <summary>Begins to load many keys. Nothing is sent before entries are added.</summary>
    /// <param name="giveUpAfter">The load fails if nothing is acknowledged for so long, because leaders change or nodes are away; 30 seconds if it is
    /// null.</param>
    public KvBulkLoad BulkLoad(TimeSpan? giveUpAfter = null) => new(_calls, giveUpAfter ?? LoadGivesUpAfter);

    IKvBulkLoad IKvClient.BulkLoad(TimeSpan? giveUpAfter) => BulkLoad(giveUpAfter);

    /// <summary>The shard that owns a key, by this client's present shard map; null while no map is known.</summary>
    /// <exception cref="OperationCanceledException">The caller stopped waiting.</exception>
    public async ValueTask<uint?> FindShardAsync(KvKey key, CancellationToken cancellationToken = default) =>
        await _router.WaitForMapAsync(_router.DeadlineFromNow(), cancellationToken).ConfigureAwait(false) ? _router.Table.Find(key.Span)?.Shard : null;

    /// <summary>
    /// Asks the cluster for something small, and returns how long that took: it reads a key of the shard with the first keys, which need not exist, from its
    /// leader. So an answer says that the cluster is reachable and that this shard has a leader.
    /// </summary>
    /// <exception cref="KvException">There was no answer within <see cref="KvClientOptions.Timeout"/>, or the cluster refused the call; the reason says
    /// why.</exception>
    public async ValueTask<TimeSpan> PingAsync(CancellationToken cancellationToken = default)
    {
        var time = _router.Runtime.Time;
        var began = time.GetTimestamp();
        await GetAsync(PingKey, KvReadMode.Leader, cancellationToken).ConfigureAwait(false);
        return time.GetElapsedTime(began);
    }

    /// <summary>
    /// Closes the client at once, without waiting for anything. Calls in progress fail. Its sessions are left to the cluster, which ends each when it has been
    /// silent for about a minute; <see cref="DisposeAsync"/> ends them.
    /// </summary>
    public void Dispose() => _ = _closed.Value;

    /// <summary>Ends this client's sessions, for which it waits a second at most, and closes all connections. Calls in progress fail.</summary>
    public async ValueTask DisposeAsync()
    {
        try
        {
            await _calls.EndSessionsAsync().ConfigureAwait(false);
        }
        catch (ObjectDisposedException)
        {
            // Dispose has closed the client, before this call or during it. So its sessions are left to the cluster.
        }
        await _closed.Value.ConfigureAwait(false);
    }

    private async Task CloseAsync()
    {
        await _router.DisposeAsync().ConfigureAwait(false);
        _channels.Dispose();
    }

    /// <summary>Makes the connections with these options.</summary>
    /// <exception cref="KvException">A file is not usable.</exception>
    internal static TlsConnector ConnectorOf(KvTlsOptions? tls)
    {
        if (tls is null)
            return new TlsConnector(files: null);
        try
        {
            var files = new TlsFiles { AuthorityFile = tls.AuthorityFile, CertificateFile = tls.CertificateFile, KeyFile = tls.KeyFile };
            return new TlsConnector(new CredentialFiles(files, TimeProvider.System), tls.ServerName) { Given = tls.ToCredentials() };
        }
        catch (UnusableFileException failure)
        {
            throw new KvException(KvReasons.TlsFileUnusable, failure.Message, cause: failure);
        }
    }

    private async IAsyncEnumerable<KvEntry> EntriesAsync(KvScan scan, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        var request = scan.ToMessage(_calls.Seen.ToOptions(scan.Read ?? _options.Read, shard: null));
        using var ended = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken, _router.Closing);
        var pages = new ScanWalk(_router, _scans, scan.Timeout ?? _options.Timeout).PagesAsync(request, ended.Token).GetAsyncEnumerator(ended.Token);
        await using (pages.ConfigureAwait(false))
        {
            for (ReadOnlyMemory<byte> lastKey = default; await NextAsync(pages, lastKey, cancellationToken).ConfigureAwait(false);)
            {
                var page = pages.Current.Decode();
                _calls.See(page.Position);
                foreach (var entry in page.Entries)
                {
                    lastKey = entry.Key.Memory;
                    yield return entry.ToEntry();
                }
            }
        }
    }

    // Reads the next message of a stream, which its caller ends, or the disposal of the client.
    private async ValueTask<bool> NextAsync<T>(IAsyncEnumerator<T> messages, ReadOnlyMemory<byte> lastKey, CancellationToken cancellationToken)
    {
        try
        {
            return await messages.MoveNextAsync().ConfigureAwait(false);
        }
        catch (Exception failure) when (failure is RpcException or OperationCanceledException
            && _router.Closing.IsCancellationRequested && !cancellationToken.IsCancellationRequested)
        {
            throw new ObjectDisposedException(typeof(KvClient).FullName, failure);
        }
        catch (OperationCanceledException stopped) when (cancellationToken.IsCancellationRequested)
        {
            throw new OperationCanceledException(stopped.Message, stopped, cancellationToken);
        }
        catch (RpcException failure)
        {
            var thrown = KvErrors.ToException(failure, cancellationToken, lastKey);
            if (thrown is KvLineageChangedException)
                _calls.Seen.Forget();
            throw thrown;
        }
    }

    private static KvWatchMessage ToMessage(WatchResponse message, ImmutableSortedDictionary<uint, Position>? positions, FittedEvents events)
    {
        var forget = message.Forget is { } range ? new KvRange { Start = range.Start.Memory, End = range.End.Memory, All = true } : null;
        if (forget is not null)
            events.Forget(forget);
        return new KvWatchMessage(message.Position.ToPosition(), events.Fit([.. message.Events.Select(ToEvent)]), message.Initial)
        {
            Positions = positions,
            IsInitialComplete = message.InitialComplete,
            Forget = forget,
        };
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
        var position = _calls.See(response.Position);
        var age = response.Position is { HasAgeUs: true } of ? TimeSpan.FromMicroseconds(of.AgeUs) : (TimeSpan?)null;
        return new GetResult(
            response.Found, response.Value.Memory, response.Etag.ToEtag(), position) { Age = age, Key = response.Key.Memory, Life = response.Life.ToLife() };
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
        _calls.Seen.Raise(position);
        return position;
    }
}
