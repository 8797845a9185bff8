using System.Collections.Concurrent;
using System.Net;
using System.Net.Security;
using System.Security.Cryptography.X509Certificates;
using System.Text;
using System.Text.Json.Nodes;
using KvCluster.Node;
using KvCluster.ServiceDefaults.Security;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Server.Kestrel.Https;
using Microsoft.Extensions.Logging;

namespace KvCluster.Tests.Node;

/// <summary>
/// What kv-node certs secrets uses of Kubernetes: the secrets of a namespace behind a server with a certificate of its own, and the files of a pod's service
/// account.
/// </summary>
internal sealed class FakeKubernetes : IAsyncDisposable
{
    private const string Namespace = "data";
    private const string SecretsPath = $"/api/v1/namespaces/{Namespace}/secrets";

    private readonly Lock _lock = new();
    private readonly Dictionary<string, FakeSecret> _secrets = [];
    private readonly TemporaryDirectory _account = new();
    private readonly DevelopmentAuthority _authority = new("kubernetes", DateTimeOffset.UtcNow, DateTimeOffset.UtcNow.AddDays(1));
    private readonly X509Certificate2 _certificate;
    private readonly WebApplication _app;
    private int _version;

    private FakeKubernetes()
    {
        var issued = _authority.Issue("kube-apiserver", ["127.0.0.1"], DateTimeOffset.UtcNow, DateTimeOffset.UtcNow.AddDays(1));
        _certificate = X509Certificate2.CreateFromPem(issued.CertificatePem, issued.KeyPem);
        WriteAccount(_authority);
        var builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders();
        builder.WebHost.ConfigureKestrel(kestrel => kestrel.Listen(IPAddress.Loopback, 0, listen => listen.UseHttps(new TlsHandshakeCallbackOptions
        {
            OnConnection = _ => ValueTask.FromResult(new SslServerAuthenticationOptions { ServerCertificate = _certificate }),
        })));
        _app = builder.Build();
        _app.Run(AnswerAsync);
    }

    /// <summary>Asked before a call is served, with the method and the secret's name. It may return the status and message of a refusal.</summary>
    public Func<string, string, (int Status, string Message)?> Script { get; set; } = (_, _) => null;

    /// <summary>The calls so far: "GET name".</summary>
    public ConcurrentQueue<string> Calls { get; } = new();

    /// <summary>The names of the secrets.</summary>
    public IEnumerable<string> Names
    {
        get
        {
            lock (_lock)
                return [.. _secrets.Keys.Order()];
        }
    }

    public static async Task<FakeKubernetes> StartAsync()
    {
        var kubernetes = new FakeKubernetes();
        await kubernetes._app.StartAsync();
        return kubernetes;
    }

    /// <summary>The secrets as a pod sees them.</summary>
    public KubernetesSecrets Connect() => new(new Uri(_app.Urls.Single()), _account.Path);

    /// <summary>Makes pods trust another authority than that of the server.</summary>
    public void TrustAnother()
    {
        using var other = new DevelopmentAuthority("other", DateTimeOffset.UtcNow, DateTimeOffset.UtcNow.AddDays(1));
        WriteAccount(other);
    }

    public FakeSecret Secret(string name)
    {
        lock (_lock)
            return _secrets[name];
    }

    /// <summary>Creates or replaces a secret, as somebody else does.</summary>
    public void Put(string name, params (string Key, string Text)[] data)
    {
        lock (_lock)
            _secrets[name] = new FakeSecret("Opaque", [], data.ToDictionary(one => one.Key, one => one.Text), ++_version);
    }

    public void Delete(string name)
    {
        lock (_lock)
            _secrets.Remove(name);
    }

    public async ValueTask DisposeAsync()
    {
        await _app.StopAsync(new CancellationToken(canceled: true));
        await _app.DisposeAsync();
        _certificate.Dispose();
        _authority.Dispose();
        _account.Dispose();
    }

    private void WriteAccount(DevelopmentAuthority authority)
    {
        foreach (var (name, text) in ((string, string)[])[("ca.crt", authority.CertificatePem), ("token", "secret-token\n"), ("namespace", Namespace)])
            File.WriteAllText(Path.Combine(_account.Path, name), text);
    }

    private async Task AnswerAsync(HttpContext context)
    {
        var path = context.Request.Path.Value!;
        var body = context.Request.ContentLength > 0 ? (await JsonNode.ParseAsync(context.Request.Body))!.AsObject() : null;
        var (status, answer) = path.StartsWith(SecretsPath, StringComparison.Ordinal) && context.Request.Headers.Authorization == "Bearer secret-token"
            ? Answer(
                context.Request.Method, path.Length > SecretsPath.Length ? path[(SecretsPath.Length + 1)..] : body!["metadata"]!["name"]!.GetValue<string>(),
                context.Request.ContentType, body)
            : Refusal(401, "Unauthorized");
        context.Response.StatusCode = status;
        context.Response.ContentType = "application/json";
        await context.Response.WriteAsync(answer.ToJsonString());
    }

    private (int Status, JsonObject Answer) Answer(string method, string name, string? type, JsonObject? body)
    {
        Calls.Enqueue($"{method} {name}");
        if (Script(method, name) is { } refusal)
            return Refusal(refusal.Status, refusal.Message);
        lock (_lock)
        {
            var there = _secrets.GetValueOrDefault(name);
            if (method == "POST")
                return there is null ? (201, Create(name, body!)) : Refusal(409, $"secrets \"{name}\" already exists");
            if (there is null)
                return Refusal(404, $"secrets \"{name}\" not found");
            if (method == "GET")
                return (200, ObjectOf(name, there));
            if (method != "PATCH" || type != "application/merge-patch+json")
                return Refusal(415, "the body of the request was in an unknown format");
            if (body!["metadata"]!["resourceVersion"]!.GetValue<string>() != VersionOf(there))
                return Refusal(409, $"Operation cannot be fulfilled on secrets \"{name}\": the object has been modified");
            var data = DataOf(body);
            _secrets[name] = there with { Data = there.Data.Where(one => !data.ContainsKey(one.Key)).Concat(data).ToDictionary(), Version = ++_version };
            return (200, ObjectOf(name, _secrets[name]));
        }
    }

    private JsonObject Create(string name, JsonObject body)
    {
        var labels = body["metadata"]!["labels"]!.AsObject().ToDictionary(one => one.Key, one => one.Value!.GetValue<string>());
        _secrets[name] = new FakeSecret(body["type"]!.GetValue<string>(), labels, DataOf(body), ++_version);
        return ObjectOf(name, _secrets[name]);
    }

    private static (int Status, JsonObject Answer) Refusal(int status, string message) =>
        (status, new JsonObject { ["kind"] = "Status", ["status"] = "Failure", ["message"] = message, ["code"] = status });

    private static JsonObject ObjectOf(string name, FakeSecret secret) => new()
    {
        ["kind"] = "Secret",
        ["metadata"] = new JsonObject { ["name"] = name, ["resourceVersion"] = VersionOf(secret) },
        // A secret without data has no such field.
        ["data"] = secret.Data.Count == 0
            ? null
            : new JsonObject(secret.Data.Select(
                one => KeyValuePair.Create(one.Key, (JsonNode?)JsonValue.Create(Convert.ToBase64String(Encoding.UTF8.GetBytes(one.Value)))))),
    };

    private static Dictionary<string, string> DataOf(JsonObject body) =>
        body["data"]!.AsObject().ToDictionary(one => one.Key, one => Encoding.UTF8.GetString(Convert.FromBase64String(one.Value!.GetValue<string>())));

    private static string VersionOf(FakeSecret secret) => secret.Version.ToString(System.Globalization.CultureInfo.InvariantCulture);
}

/// <summary>A secret as it is stored.</summary>
internal sealed record FakeSecret(string Type, Dictionary<string, string> Labels, Dictionary<string, string> Data, int Version);
