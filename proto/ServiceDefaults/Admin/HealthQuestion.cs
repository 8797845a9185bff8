using System.Net;
using KvCluster.ServiceDefaults.Hosting;

namespace KvCluster.ServiceDefaults.Admin;

/// <summary>
/// Asks a process on this machine whether it is ready. Implements <c>kv-node health</c> and <c>kv-router health</c>, for images without a shell.
/// </summary>
internal static class HealthQuestion
{
    private static readonly TimeSpan Limit = TimeSpan.FromSeconds(3);

    /// <param name="admin">The address of its admin port, "http://host:port". If that means all addresses of the machine, loopback is asked.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>Whether it is ready, and its answer as one line.</returns>
    public static async Task<(bool IsReady, string Line)> AskAsync(Uri admin, CancellationToken cancellationToken)
    {
        using var http = new HttpClient(new SocketsHttpHandler { UseProxy = false }) { Timeout = Limit };
        var url = new Uri(LocalAddress.Of(admin), "/health/ready");
        try
        {
            using var answer = await http.GetAsync(url, cancellationToken).ConfigureAwait(false);
            var line = (await answer.Content.ReadAsStringAsync(cancellationToken).ConfigureAwait(false)).Trim();
            return (answer.StatusCode == HttpStatusCode.OK, line);
        }
        catch (HttpRequestException failure)
        {
            return (false, $"no answer from {url}: {failure.Message}");
        }
        catch (TaskCanceledException) when (!cancellationToken.IsCancellationRequested)
        {
            return (false, $"no answer from {url} within {Limit.TotalSeconds} s");
        }
    }
}
