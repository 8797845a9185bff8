using Etcdserverpb;
using Grpc.Core;

namespace KvCluster.Node.Coordination.Etcd;

/// <summary>
/// The token that a user's calls carry. Got when the first call needs it, and anew when etcd refuses it: tokens end with time, with a change of
/// users or roles, and with etcd's own restart. Thread-safe; callers that wait at once share one request.
/// </summary>
/// <param name="user">Null: calls carry no token.</param>
/// <param name="requestTime">For one request.</param>
internal sealed class EtcdLogin(string? user, string password, TimeSpan requestTime)
{
    private readonly Lock _gate = new();
    private Task<string?>? _token;

    /// <summary>The token to send; null: none.</summary>
    /// <exception cref="RpcException">The member does not answer, or refuses user and password.</exception>
    public async Task<string?> TokenAsync(EtcdEndpoint endpoint, CancellationToken cancellationToken)
    {
        if (user is null)
            return null;
        Task<string?> token;
        lock (_gate)
        {
            if (_token is null or { IsFaulted: true } or { IsCanceled: true })
                _token = AuthenticateAsync(endpoint);
            token = _token;
        }
        return await token.WaitAsync(cancellationToken).ConfigureAwait(false);
    }

    /// <summary>A call with this token was refused for it: the next call gets another.</summary>
    public void Forget(string? token)
    {
        lock (_gate)
        {
            if (_token is { IsCompletedSuccessfully: true } held && held.Result == token)
                _token = null;
        }
    }

    /// <summary>Whether etcd refused a call because of its token, before doing anything.</summary>
    public static bool IsRefused(Status status) => status.StatusCode == StatusCode.Unauthenticated
        // Users or roles changed since the token was given; an older etcd forgot a user's token and took the call for one without.
        || (status.StatusCode == StatusCode.InvalidArgument && IsRefused(status.Detail));

    /// <summary>The same from the words with which a watch is cancelled.</summary>
    public static bool IsRefused(string reason) => reason.Contains("invalid auth token", StringComparison.Ordinal)
        || reason.Contains("revision of auth store is old", StringComparison.Ordinal)
        || reason.Contains("user name is empty", StringComparison.Ordinal);

    /// <summary>Whether etcd refuses the user, the password, or what the user may do, and will again.</summary>
    public static bool IsDenied(Status status) => status.StatusCode == StatusCode.PermissionDenied
        || (status.StatusCode == StatusCode.InvalidArgument
            && (status.Detail.Contains("invalid user ID or password", StringComparison.Ordinal) || status.Detail.Contains("user name is empty", StringComparison.Ordinal)));

    /// <summary>Whose calls these are, for people.</summary>
    public override string ToString() => user is null ? "calls without a user (coordinator-user)" : $"the user '{user}'";

    private async Task<string?> AuthenticateAsync(EtcdEndpoint endpoint)
    {
        try
        {
            var response = await endpoint.Auth.AuthenticateAsync(new AuthenticateRequest { Name = user, Password = password }, deadline: DateTime.UtcNow + requestTime).ConfigureAwait(false);
            return response.Token;
        }
        catch (RpcException refused) when (refused.StatusCode == StatusCode.FailedPrecondition && refused.Status.Detail.Contains("authentication is not enabled", StringComparison.Ordinal))
        {
            // Not switched on yet, as while a cluster is set up: calls without a token work until it is, and are refused for the lack of one then.
            return null;
        }
    }
}
