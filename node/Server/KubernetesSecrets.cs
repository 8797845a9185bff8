// Reads and writes secrets of the namespace in which this pod runs, for kv-node certs secrets. It calls the API server over HTTP with the token of the pod's
// service account, because it needs three calls and the image has no kubectl. One caller at a time. An IOException is one line that says which call failed;
// that call changed nothing, unless its answer was lost.
using System.Globalization;
using System.Net;
using System.Net.Http.Headers;
using System.Net.Security;
using System.Security.Cryptography;
using System.Security.Cryptography.X509Certificates;
using System.Text;
using System.Text.Json;
using System.Text.Json.Nodes;
using KvCluster.ServiceDefaults.Configuration;
using KvCluster.Tls;

namespace KvCluster.Node;

/// <summary>The secrets of one namespace.</summary>
internal sealed class KubernetesSecrets : IDisposable
{
    private const string HostVariable = "KUBERNETES_SERVICE_HOST";
    private const string PortVariable = "KUBERNETES_SERVICE_PORT";

    /// <summary>Where Kubernetes puts the files of a pod's service account.</summary>
    private const string AccountFolder = "/var/run/secrets/kubernetes.io/serviceaccount";

    /// <summary>A secret has at most 1 MiB, in base64.</summary>
    private const int AnswerBytesMax = 4 << 20;

    /// <summary>More than the API server takes when it is slow. Who runs this tries again.</summary>
    private static readonly TimeSpan CallTimeMax = TimeSpan.FromSeconds(15);

    private readonly HttpClient _http;
    private readonly Uri _server;

    /// <param name="server">The API server, "https://host:port".</param>
    /// <param name="accountFolder">The files of the service account: token, ca.crt and namespace.</param>
    /// <exception cref="UnusableFileException">One of the files cannot be used.</exception>
    public KubernetesSecrets(Uri server, string accountFolder)
    {
        _server = server;
        var policy = new X509ChainPolicy
        {
            TrustMode = X509ChainTrustMode.CustomRootTrust, RevocationMode = X509RevocationMode.NoCheck, DisableCertificateDownloads = true
        };
        var authorityFile = Path.Combine(accountFolder, "ca.crt");
        try
        {
            policy.CustomTrustStore.ImportFromPem(Read(authorityFile));
        }
        catch (CryptographicException failure)
        {
            throw new UnusableFileException(authorityFile, failure.Message);
        }
        Namespace = Read(Path.Combine(accountFolder, "namespace")).Trim();
        var handler = new SocketsHttpHandler { UseProxy = false, SslOptions = new SslClientAuthenticationOptions { CertificateChainPolicy = policy } };
        _http = new HttpClient(handler) { Timeout = CallTimeMax, MaxResponseContentBufferSize = AnswerBytesMax };
        _http.DefaultRequestHeaders.Authorization = new AuthenticationHeaderValue("Bearer", Read(Path.Combine(accountFolder, "token")).Trim());
        _http.DefaultRequestHeaders.Accept.Add(new MediaTypeWithQualityHeaderValue("application/json"));
    }

    public string Namespace { get; }

    /// <summary>Those of the namespace in which this process runs.</summary>
    /// <exception cref="SettingsException">It does not run in a pod of Kubernetes.</exception>
    /// <exception cref="UnusableFileException">A file of the service account cannot be used.</exception>
    public static KubernetesSecrets OfThisPod()
    {
        if (Environment.GetEnvironmentVariable(HostVariable) is not { Length: > 0 } host)
            throw new SettingsException(
                [$"{HostVariable} is not set, so this is not a pod of Kubernetes; nothing was changed. 'certs init' writes the same certificates as files."]);
        var port = Environment.GetEnvironmentVariable(PortVariable) is { Length: > 0 } given ? int.Parse(given, CultureInfo.InvariantCulture) : 443;
        return new KubernetesSecrets(new UriBuilder(Uri.UriSchemeHttps, host, port).Uri, AccountFolder);
    }

    /// <summary>A secret's present content; null if it does not exist.</summary>
    public async Task<KubernetesSecret?> FindAsync(string name, CancellationToken cancellationToken)
    {
        var (status, answer) = await CallAsync(HttpMethod.Get, PathOf(name), body: null, $"read the secret '{name}'", cancellationToken).ConfigureAwait(false);
        if (status == HttpStatusCode.NotFound)
            return null;
        var data = answer["data"]?.AsObject()
            .ToDictionary(static one => one.Key, static one => Encoding.UTF8.GetString(Convert.FromBase64String(one.Value!.GetValue<string>()))) ?? [];
        return new KubernetesSecret(name, answer["metadata"]!["resourceVersion"]!.GetValue<string>(), data);
    }

    /// <summary>Creates a secret.</summary>
    /// <returns>Whether it was created; otherwise it exists.</returns>
    public async Task<bool> TryCreateAsync(
        string name, string type, IReadOnlyDictionary<string, string> labels, IReadOnlyDictionary<string, string> data, CancellationToken cancellationToken)
    {
        var body = new JsonObject
        {
            ["apiVersion"] = "v1",
            ["kind"] = "Secret",
            ["metadata"] = new JsonObject { ["name"] = name, ["labels"] = ObjectOf(labels, static value => value) },
            ["type"] = type,
            ["data"] = Encoded(data),
        };
        var (status, _) = await CallAsync(HttpMethod.Post, PathOf(name: null), body, $"create the secret '{name}'", cancellationToken).ConfigureAwait(false);
        return status != HttpStatusCode.Conflict;
    }

    /// <summary>Replaces some of a secret's entries, and keeps the others.</summary>
    /// <param name="current">The secret as it was read.</param>
    /// <returns>Whether it was changed; otherwise it has been changed or deleted since it was read.</returns>
    public async Task<bool> TryChangeAsync(KubernetesSecret current, IReadOnlyDictionary<string, string> data, CancellationToken cancellationToken)
    {
        var body = new JsonObject { ["metadata"] = new JsonObject { ["resourceVersion"] = current.Version }, ["data"] = Encoded(data) };
        var (status, _) =
            await CallAsync(HttpMethod.Patch, PathOf(current.Name), body, $"change the secret '{current.Name}'", cancellationToken).ConfigureAwait(false);
        return status is not (HttpStatusCode.Conflict or HttpStatusCode.NotFound);
    }

    public void Dispose() => _http.Dispose();

    // Returns the status with an empty answer if that is a conflict or not found, which the caller expects.
    private async Task<(HttpStatusCode Status, JsonNode Answer)> CallAsync(
        HttpMethod method, string path, JsonObject? body, string what, CancellationToken cancellationToken)
    {
        using var request = new HttpRequestMessage(method, new Uri(_server, path));
        if (body is not null)
        {
            request.Content = new ByteArrayContent(Encoding.UTF8.GetBytes(body.ToJsonString()));
            request.Content.Headers.ContentType = new MediaTypeHeaderValue(method == HttpMethod.Patch ? "application/merge-patch+json" : "application/json");
        }
        try
        {
            using var answer = await _http.SendAsync(request, cancellationToken).ConfigureAwait(false);
            var text = await answer.Content.ReadAsStringAsync(cancellationToken).ConfigureAwait(false);
            if (answer.IsSuccessStatusCode)
                return (answer.StatusCode, JsonNode.Parse(text)!);
            if (answer.StatusCode == HttpStatusCode.Conflict || (answer.StatusCode == HttpStatusCode.NotFound && method != HttpMethod.Post))
                return (answer.StatusCode, new JsonObject());
            // A refusal of the server changes nothing. A failure may have come after the change.
            var outcome = (int)answer.StatusCode < 500 ? "It is unchanged." : "Run this again.";
            throw new IOException(
                $"The Kubernetes API server at {_server.Authority} refused to {what} ({(int)answer.StatusCode}): {ReasonOf(text)}. {outcome}");
        }
        catch (HttpRequestException failure)
        {
            throw new IOException($"The Kubernetes API server at {_server.Authority} gave no answer when asked to {what}: "
                + $"{(failure.InnerException ?? failure).Message} Run this again.", failure);
        }
        catch (TaskCanceledException failure) when (!cancellationToken.IsCancellationRequested)
        {
            throw new IOException(
                $"The Kubernetes API server at {_server.Authority} gave no answer within {CallTimeMax.TotalSeconds:0} s when asked to {what}. Run this again.",
                failure);
        }
        catch (JsonException failure)
        {
            throw new IOException($"What answers at {_server.Authority}, asked to {what}, is not a Kubernetes API server: {failure.Message}", failure);
        }
    }

    // An error is an object of the kind Status with a message for people.
    private static string ReasonOf(string text)
    {
        try
        {
            return (JsonNode.Parse(text) as JsonObject)?["message"]?.GetValue<string>() ?? "it gives no reason";
        }
        catch (JsonException)
        {
            return "it gives no reason";
        }
    }

    private static string Read(string file)
    {
        try
        {
            return File.ReadAllText(file);
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            throw new UnusableFileException(file, failure.Message);
        }
    }

    private string PathOf(string? name) =>
        $"/api/v1/namespaces/{Uri.EscapeDataString(Namespace)}/secrets{(name is null ? "" : "/" + Uri.EscapeDataString(name))}";

    private static JsonObject Encoded(IReadOnlyDictionary<string, string> data) =>
        ObjectOf(data, static value => Convert.ToBase64String(Encoding.UTF8.GetBytes(value)));

    private static JsonObject ObjectOf(IReadOnlyDictionary<string, string> entries, Func<string, string> write) =>
        new(entries.Select(one => KeyValuePair.Create(one.Key, (JsonNode?)JsonValue.Create(write(one.Value)))));
}

/// <summary>A secret as it was read.</summary>
/// <param name="Name">Its name in the namespace.</param>
/// <param name="Version">Changes with every change of the secret.</param>
/// <param name="Data">Its entries, decoded.</param>
internal sealed record KubernetesSecret(string Name, string Version, IReadOnlyDictionary<string, string> Data);
