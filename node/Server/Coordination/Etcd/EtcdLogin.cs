using Etcdserverpb;
using Grpc.Core;

namespace KvCluster.Node.Coordination.Etcd;

/// <summary>
/// The token of a user's calls. Requested when the first call needs it, and again when etcd refuses it, because tokens become invalid with time, with a
/// change of users or roles, and with a restart of etcd. Thread-safe; concurrent callers share one request.
/// </summary>
/// <param name="user">Null if calls carry no token.</param>
/// <param name="requestTime">Timeout of one request.</param>
internal sealed class EtcdLogin(string? user, string password, TimeSpan requestTime)
{
    private readonly Lock _gate = new();
    private Task<string?>? _token;

    /// <summary>The token to send; null if none.</summary>
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

    /// <summary>A call was refused because of this token. The next call requests another.</summary>
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
        // Users or roles changed after the token was issued. An older etcd forgot a user's token and treated the call as one without.
        || (status.StatusCode == StatusCode.InvalidArgument && IsRefused(status.Detail));

    /// <summary>The same for the reason with which a watch is cancelled.</summary>
    public static bool IsRefused(string reason) => reason.Contains("invalid auth token", StringComparison.Ordinal)
        || reason.Contains("revision of auth store is old", StringComparison.Ordinal)
        || reason.Contains("user name is empty", StringComparison.Ordinal);

    /// <summary>Whether etcd permanently refuses the user, the password, or what the user may do.</summary>
    public static bool IsDenied(Status status) => status.StatusCode == StatusCode.PermissionDenied
        || (status.StatusCode == StatusCode.InvalidArgument
            && (status.Detail.Contains("invalid user ID or password", StringComparison.Ordinal)
                || status.Detail.Contains("user name is empty", StringComparison.Ordinal)));

    /// <summary>The user of these calls, for messages.</summary>
    public override string ToString() => user is null ? "calls without a user (coordinator-user)" : $"the user '{user}'";

    private async Task<string?> AuthenticateAsync(EtcdEndpoint endpoint)
    {
        try
        {
            var response = await endpoint.Auth.AuthenticateAsync(
                new AuthenticateRequest { Name = user, Password = password }, deadline: DateTime.UtcNow + requestTime).ConfigureAwait(false);
            return response.Token;
        }
        catch (RpcException refused) when (refused.StatusCode == StatusCode.FailedPrecondition
            && refused.Status.Detail.Contains("authentication is not enabled", StringComparison.Ordinal))
        {
            // Authentication is not enabled yet, as while a cluster is set up. Calls without a token work until it is, and are then refused because they
            // have none.
            return null;
        }
    }
}
