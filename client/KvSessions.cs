using KvCluster.V1;

namespace KvCluster.Client;

/// <summary>The calls of a <see cref="KvClient"/> for sessions that own keys: a key that a session owns ends with it. Thread-safe.</summary>
public sealed class KvSessions : IKvSessions
{
    private readonly ClientCalls _calls;

    internal KvSessions(ClientCalls calls) => _calls = calls;

    /// <summary>Opens a session in the shard of a key.</summary>
    /// <param name="key">Any key of the shard.</param>
    /// <param name="lifetime">From a second to a day. The session ends if it is not kept alive for this long.</param>
    /// <param name="options">What is special about the call; null: nothing.</param>
    /// <param name="cancellationToken">Stops waiting. A session that was opened all the same ends by itself.</param>
    /// <exception cref="KvInvalidRequestException">The key is empty or too long, or no session can live so long; nothing was opened.</exception>
    /// <exception cref="KvUnavailableException">There was no answer in time, or the shard has as many sessions as it may (reason BUSY).</exception>
    /// <exception cref="KvException">It was refused for another reason of <see cref="KvReasons"/>; nothing was applied.</exception>
    public async ValueTask<KvSession> OpenAsync(
        KvKey key, TimeSpan lifetime, KvCallOptions? options = null, CancellationToken cancellationToken = default)
    {
        var request = new OpenSessionRequest { Key = key.ToByteString(), LifetimeMs = (ulong)Math.Max(0, lifetime.TotalMilliseconds) };
        var response = OpenSessionResponse.Parser.ParseFrom(
            await SendAsync(Method.OpenSession, key, request, options, cancellationToken).ConfigureAwait(false));
        return new KvSession(key, response.Session.Memory, lifetime) { Opened = _calls.See(response.Position).Etag };
    }

    /// <summary>Restarts the countdown of a session, and returns how long it lives without another call. Zero: it has ended, and its keys with it.</summary>
    /// <param name="session">As it was opened, by this client or another one.</param>
    /// <param name="options">What is special about the call; null: nothing.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvUnavailableException">There was no answer in time; the countdown was perhaps restarted.</exception>
    /// <exception cref="KvInvalidRequestException">The id is none of a session.</exception>
    /// <exception cref="KvException">It failed for another reason of <see cref="KvReasons"/>.</exception>
    public async ValueTask<TimeSpan> KeepAliveAsync(KvSession session, KvCallOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(session);
        var request = new KeepAliveRequest { Key = session.Key.ToByteString(), Sessions = { session.Id.ToByteString() } };
        var response = KeepAliveResponse.Parser.ParseFrom(
            await SendAsync(Method.KeepAlive, session.Key, request, options, cancellationToken).ConfigureAwait(false));
        _calls.See(response.Position);
        return response.LeftMs.Count == 1 ? TimeSpan.FromMilliseconds(response.LeftMs[0]) : TimeSpan.Zero;
    }

    /// <summary>
    /// Ends a session and removes its keys in the same change. Returns how many; null if there was no such session, also because an earlier attempt of this
    /// call ended it and its answer was lost.
    /// </summary>
    /// <param name="session">As it was opened, by this client or another one.</param>
    /// <param name="options">What is special about the call; null: nothing.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvUnavailableException">There was no answer in time; the session has perhaps ended.</exception>
    /// <exception cref="KvOutcomeUnknownException">The answer was lost. Ending the session again is harmless.</exception>
    /// <exception cref="KvInvalidRequestException">The id is none of a session.</exception>
    /// <exception cref="KvException">It failed for another reason of <see cref="KvReasons"/>.</exception>
    public async ValueTask<ulong?> EndAsync(KvSession session, KvCallOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(session);
        var request = new EndSessionRequest { Key = session.Key.ToByteString(), Session = session.Id.ToByteString() };
        var response = EndSessionResponse.Parser.ParseFrom(
            await SendAsync(Method.EndSession, session.Key, request, options, cancellationToken).ConfigureAwait(false));
        _calls.See(response.Position);
        return response.Existed ? response.Deleted : null;
    }

    // Repeating any of them is harmless, so they need no request id.
    private async ValueTask<Google.Protobuf.ByteString> SendAsync(
        Method method, KvKey key, Google.Protobuf.IMessage request, KvCallOptions? options, CancellationToken cancellationToken)
    {
        var terms = _calls.TermsOf(options);
        return _calls.ResponseOf(await _calls.Router.CallAsync(
            method, key, Google.Protobuf.MessageExtensions.ToByteString(request), terms.DeadlineMs, cancellationToken, noRetry: terms.NoRetry)
            .ConfigureAwait(false));
    }
}
