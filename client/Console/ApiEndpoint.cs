// Common to all calls under /api/: who may make them, JSON in and out, and failures as a status with one line. Any thread.
using System.Text.Json;
using System.Text.Json.Serialization;
using KvCluster.Client;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.ServiceDefaults.Logs;
using KvCluster.Tls;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.Logging;

namespace KvCluster.AdminConsole;

/// <summary>Creates the endpoints of the console's JSON API.</summary>
internal sealed class ApiEndpoint(AdminToken token, bool keysNeedToken, IReadOnlySet<string> hosts, TimeProvider time, ILogger log)
{
    private static readonly JsonSerializerOptions Json = new(JsonSerializerDefaults.Web) { DefaultIgnoreCondition = JsonIgnoreCondition.WhenWritingNull };

    // A change whose meaning is in doubt is not made.
    private static readonly JsonSerializerOptions Commands = new(JsonSerializerDefaults.Web)
    {
        UnmappedMemberHandling = JsonUnmappedMemberHandling.Disallow,
        RespectNullableAnnotations = true,
        AllowDuplicateProperties = false,
    };

    private readonly OncePerHost _refused = new(time);

    /// <summary>Answers a GET.</summary>
    public AdminEndpoint Get(string path, Access access, Func<HttpRequest, CancellationToken, Task<object>> answer) =>
        new(HttpMethods.Get, path, context => RunAsync(context, access, answer));

    /// <summary>Answers a POST of JSON.</summary>
    public AdminEndpoint Post<TRequest>(string path, Func<TRequest, CancellationToken, Task<object>> answer)
        where TRequest : class => new(HttpMethods.Post, path, context => RunAsync(context, Access.Change, async (request, stop) =>
        {
            var command = await ReadAsync<TRequest>(request, stop).ConfigureAwait(false);
            var done = await answer(command, stop).ConfigureAwait(false);
            ConsoleLog.Changed(log, path, context.Connection.RemoteIpAddress);
            return done;
        }));

    /// <summary>Whether the sender of a request may see keys and values.</summary>
    public bool MaySeeKeys(HttpRequest request) => !keysNeedToken || token.IsShownBy(request);

    private static async Task<TRequest> ReadAsync<TRequest>(HttpRequest request, CancellationToken cancellationToken)
    {
        // A form of another site cannot send this content type.
        if (!request.HasJsonContentType())
            throw new BadRequestException("The request is not JSON.");
        return await request.ReadFromJsonAsync<TRequest>(Commands, cancellationToken).ConfigureAwait(false)
            ?? throw new BadRequestException("The request is empty.");
    }

    private async Task RunAsync(HttpContext context, Access access, Func<HttpRequest, CancellationToken, Task<object>> answer)
    {
        PageHeaders.Set(context.Response);
        var (status, document) = await AnswerAsync(context, access, answer).ConfigureAwait(false);
        context.Response.StatusCode = status;
        await context.Response.WriteAsJsonAsync(document, document.GetType(), Json, context.RequestAborted).ConfigureAwait(false);
    }

    private async Task<(int Status, object Document)> AnswerAsync(HttpContext context, Access access, Func<HttpRequest, CancellationToken, Task<object>> answer)
    {
        try
        {
            return Refusal(context, access) ?? (StatusCodes.Status200OK, await answer(context.Request, context.RequestAborted).ConfigureAwait(false));
        }
        catch (KvConditionFailedException failure)
        {
            return Failed(StatusCodes.Status412PreconditionFailed, failure.Message);
        }
        catch (KvUnavailableException failure)
        {
            return Failed(StatusCodes.Status503ServiceUnavailable, failure.Message);
        }
        catch (KvOutcomeUnknownException failure)
        {
            return Failed(StatusCodes.Status504GatewayTimeout, $"The outcome is unknown: {failure.Message}");
        }
        catch (KvException failure)
        {
            return Failed(failure is KvInvalidRequestException ? StatusCodes.Status400BadRequest : StatusCodes.Status409Conflict, failure.Message);
        }
        catch (Exception failure) when (failure is BadRequestException or JsonException)
        {
            return Failed(StatusCodes.Status400BadRequest, failure.Message);
        }
        catch (UnusableFileException failure)
        {
            ConsoleLog.TokenUnusable(log, failure.Message);
            return Failed(StatusCodes.Status503ServiceUnavailable, "The token file is not usable; see the log for the reason.");
        }
    }

    private (int Status, object Document)? Refusal(HttpContext context, Access access)
    {
        if (!PageHeaders.IsKnownHost(context.Request, hosts))
            return Failed(
                StatusCodes.Status403Forbidden, $"The request names the host '{context.Request.Host.Host}', which is not in the setting admin-hosts.");
        if (!PageHeaders.IsOfThisPage(context.Request))
            return Failed(StatusCodes.Status403Forbidden, "The request came from a page of another site.");
        if (access == Access.Open || (access == Access.Keys && !keysNeedToken))
            return null;
        if (!token.IsSet)
            return Failed(StatusCodes.Status403Forbidden, "This is disabled because the setting admin-token-file is missing.");
        if (token.IsShownBy(context.Request))
            return null;
        if (context.Request.Headers.Authorization.Count > 0 && _refused.MaySay(context.Connection.RemoteIpAddress, out var host))
            ConsoleLog.TokenRefused(log, host);
        context.Response.Headers.WWWAuthenticate = "Bearer";
        return Failed(StatusCodes.Status401Unauthorized, "This requires the token.");
    }

    private static (int Status, object Document) Failed(int status, string error) => (status, new { error });
}

/// <summary>What a request to the console must present.</summary>
internal enum Access
{
    /// <summary>Nothing.</summary>
    Open,

    /// <summary>The token, if the cluster shows keys only to clients that it knows.</summary>
    Keys,

    /// <summary>The token. If none is configured, changes are disabled.</summary>
    Change,
}
