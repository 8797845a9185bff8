using System.Runtime.CompilerServices;
using Google.Protobuf;
using KvCluster.Client.Sessions;
using KvCluster.Client.Transport;
using KvCluster.V1;

namespace KvCluster.Client;

/// <summary>
/// What the calls of a client have in common: reads in a mode, changes that are applied once, and what the client has seen. Used by <see cref="KvClient"/> and
/// the parts of it; thread-safe.
/// </summary>
internal sealed class ClientCalls(KvClientOptions options, CallRouter router)
{
    private readonly ClientSessions _sessions = new(router);

    /// <summary>Sends calls.</summary>
    public CallRouter Router => router;

    /// <summary>The sessions that identify changes; null if the client does not identify them.</summary>
    public ClientSessions? Sessions => options.ExactlyOnce ? _sessions : null;

    /// <summary>The newest positions that were answered.</summary>
    public SessionToken Seen { get; } = new();

    /// <summary>Ends the sessions in which changes were made, in bounded time. To be called when no more changes are made.</summary>
    public Task EndSessionsAsync() => _sessions.EndAllAsync();

    /// <summary>The options of a read in a mode (null: that of the client's options) of the shard of a key.</summary>
    public ReadOptions? ReadOptionsOf(KvReadMode? read, ReadOnlySpan<byte> key)
    {
        var mode = read ?? options.Read;
        return Seen.ToOptions(mode, mode == KvReadMode.Session ? router.Table.Find(key)?.ShardId : null);
    }

    /// <summary>What a call that begins now is given: its time, whether it is repeated, and when it is sent to another replica as well.</summary>
    public CallTerms TermsOf(KvCallOptions? call) =>
        new(router.DeadlineFromNow(call?.Timeout), call is { NoRetry: true }, (call as KvReadOptions)?.HedgeAfter);

    /// <summary>Reads one key.</summary>
    /// <param name="key">The key.</param>
    /// <param name="read">How up to date the value must be; null: as the client's options say.</param>
    /// <param name="withLife">Also return what ends the key besides a delete.</param>
    /// <param name="terms">What the call is given.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvException">The call failed.</exception>
    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    public async ValueTask<GetResult> GetAsync(KvKey key, KvReadMode? read, bool withLife, CallTerms terms, CancellationToken cancellationToken)
    {
        var mode = ReadOptionsOf(read, key.Span);
        var request = GetMessages.Encode(key.Span, mode, withLife);
        var result = GetMessages.Decode(await ReadAsync(Method.Get, key, request, mode, terms, cancellationToken).ConfigureAwait(false));
        Seen.Raise(result.Position);
        return result;
    }

    /// <summary>Sends a read and returns the encoded response.</summary>
    /// <exception cref="KvException">The call failed.</exception>
    public ValueTask<ByteString> ReadAsync(
        Method method, ReadOnlyMemory<byte> key, IMessage request, ReadOptions? read, CallTerms terms, CancellationToken cancellationToken) =>
            ReadAsync(method, key, request.ToByteString(), read, terms, cancellationToken);

    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    private async ValueTask<ByteString> ReadAsync(
        Method method, ReadOnlyMemory<byte> key, ByteString request, ReadOptions? read, CallTerms terms, CancellationToken cancellationToken) =>
            ResponseOf(await router.CallAsync(
                method, key, request, terms.DeadlineMs, cancellationToken,
                atAnyReplica: read?.Mode.IsForLeader() == false, noRetry: terms.NoRetry, hedgeAfter: terms.HedgeAfter).ConfigureAwait(false));

    /// <summary>
    /// Sends operations that only read by a method that could also change something. As a read they need no request id, with which the shard would keep their
    /// results, and which therefore bounds them to 256 KiB; and repeating them is harmless.
    /// </summary>
    /// <exception cref="KvUnavailableException">There was no answer in time.</exception>
    public async ValueTask<RoutedReply> SendReadAsync(Method method, IMessage request, CallTerms terms, CancellationToken cancellationToken)
    {
        var call = new Change(method, request.ToByteString());
        var reply = await router.CallAsync(
            method, call.Key, call.Encode(), terms.DeadlineMs, cancellationToken, isIdentified: true, noRetry: terms.NoRetry).ConfigureAwait(false);
        // A read has no unknown outcome. It was not answered in time.
        return reply.Error is { } error && CallStatus.IsUnknown(error) && !CallStatus.IsLineageChanged(error)
            ? throw new KvUnavailableException(KvReasons.DeadlinePassed, $"The read was not answered in time: {error.Message}")
            : reply;
    }

    /// <summary>The position of an answer, which the client has seen from now on.</summary>
    public ShardPosition See(Position? message)
    {
        var position = message.ToPosition();
        Seen.Raise(position);
        return position;
    }

    /// <summary>Makes a change of the shard of a key, and returns the encoded response.</summary>
    /// <exception cref="KvException">The call failed.</exception>
    public async ValueTask<ByteString> ChangeAsync(
        Method method, ReadOnlyMemory<byte> key, IMessage request, CallTerms terms, CancellationToken cancellationToken) =>
            ResponseOf(await SendAsync(new Change(method, key, default, null, request), terms, cancellationToken).ConfigureAwait(false));

    /// <summary>The same without an identity: if its answer is lost, its outcome is unknown.</summary>
    /// <exception cref="KvException">The call failed.</exception>
    public async ValueTask<ByteString> ChangeUnidentifiedAsync(
        Method method, ReadOnlyMemory<byte> key, IMessage request, CallTerms terms, CancellationToken cancellationToken) =>
            ResponseOf(await Router.CallAsync(
                method, key, request.ToByteString(), terms.DeadlineMs, cancellationToken, noRetry: terms.NoRetry).ConfigureAwait(false));

    /// <summary>Makes a change. If the shard has ended the session meanwhile, another one is used.</summary>
    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    public async ValueTask<RoutedReply> SendAsync(Change change, CallTerms terms, CancellationToken cancellationToken)
    {
        if (!options.ExactlyOnce)
            return await Router.CallAsync(
                change.Method, change.Key, change.Encode(), terms.DeadlineMs, cancellationToken, noRetry: terms.NoRetry).ConfigureAwait(false);
        while (true)
        {
            var place = Router.Table.PlaceOf(change.Key.Span);
            if (!_sessions.TryTake(place, out var ticket))
            {
                (ticket, var error) = await _sessions.TakeAsync(change.Key, terms.DeadlineMs, cancellationToken).ConfigureAwait(false);
                if (error is not null)
                    return new RoutedReply(ByteString.Empty, error);
            }
            RoutedReply reply;
            try
            {
                reply = await Router.CallAsync(
                    change.Method, change.Key, change.Encode(ticket), terms.DeadlineMs, cancellationToken, isIdentified: true, place: place,
                    noRetry: terms.NoRetry).ConfigureAwait(false);
            }
            finally
            {
                ticket.Settle();
            }
            if (reply.Error is not null && CallStatus.IsLineageChanged(reply.Error))
                ticket.Sessions.Drop(ticket.Session);
            if (reply.Error is null || !CallStatus.IsSessionExpired(reply.Error))
                return reply;
            // No attempt was executed, so the change can be made under a new identity.
            ticket.Sessions.Drop(ticket.Session);
        }
    }

    /// <summary>The response of a call.</summary>
    /// <exception cref="KvException">The call failed.</exception>
    public ByteString ResponseOf(in RoutedReply reply)
    {
        if (reply.Error is null)
            return reply.Response;
        throw ToException(reply.Error);
    }

    /// <summary>The exception of an error. What it says of positions is noted.</summary>
    public KvException ToException(Google.Rpc.Status error)
    {
        var failure = KvErrors.ToException(error);
        if (failure is KvConditionFailedException { Position: var position })
            Seen.Raise(position);
        else if (failure is KvLineageChangedException)
            Seen.Forget();
        return failure;
    }

    /// <summary>A change as its caller passed it: a put by its parts, which needs no message objects, one that is encoded, and others as the message.</summary>
    internal readonly record struct Change(Method Method, ReadOnlyMemory<byte> Key, ReadOnlyMemory<byte> Value, KvCondition? Condition, IMessage? Message)
    {
        /// <summary>A request that is encoded, and routed by a key within it.</summary>
        public Change(Method method, ByteString encoded)
            : this(method, RequestKeys.First(method, encoded), default, null, null) => Encoded = encoded;

        private ByteString? Encoded { get; }

        public ByteString Encode()
        {
            if (Encoded is not null)
                return Encoded;
            if (Message is not null)
                return Message.ToByteString();
            var request = new PutRequest { Key = Key.ToByteString(), Value = Value.ToByteString() };
            if (Condition is not null)
                request.Conditions.Add(Condition.Message);
            return request.ToByteString();
        }

        public ByteString Encode(in RequestTicket ticket) => Encoded is not null
            ? ticket.Encode(Encoded.Span, Method.RequestIdField())
            : Message is null
                ? ticket.Encode(Key.Span, Value.Span, Condition)
                : ticket.Encode(Message, Method.RequestIdField());
    }
}
