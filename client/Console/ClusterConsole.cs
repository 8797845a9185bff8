// The page on the admin port. A program adds it when it begins to serve; requests arrive on any thread. The page gets all its data through one client of the
// cluster, so node and router show the same.
using System.Buffers.Text;
using System.Globalization;
using KvCluster.Client;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.V1;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.Logging;

namespace KvCluster.AdminConsole;

/// <summary>Shows a cluster and its keys, and lets operators change it. Disposed when the program stops; its calls fail afterwards.</summary>
internal sealed class ClusterConsole : IAsyncDisposable
{
    /// <summary>Pages request it once a second.</summary>
    private static readonly TimeSpan ReadingAgeMax = TimeSpan.FromMilliseconds(800);

    /// <summary>Pages request it every five seconds, as often as nodes add a sample.</summary>
    private static readonly TimeSpan HistoryAgeMax = TimeSpan.FromSeconds(4);

    /// <summary>Pages request them every half minute. Each examination writes to the disks.</summary>
    private static readonly TimeSpan FindingsAgeMax = TimeSpan.FromSeconds(25);

    /// <summary>A node that has not answered by then is shown as not answering.</summary>
    private static readonly TimeSpan NodeLimit = TimeSpan.FromSeconds(2);

    private readonly KvClient _client;
    private readonly SharedReading<(GetStatusResponse Status, DateTimeOffset At)> _reading;
    private readonly SharedReading<(GetStatusResponse Status, DateTimeOffset At)> _history;
    private readonly SharedReading<object> _findings;
    private readonly KeyBrowser _keys;
    private readonly ApiEndpoint _api;
    private readonly AdminToken _token;
    private readonly string _program;

    private ClusterConsole(ConsoleOptions options, ILogger log)
    {
        _program = options.Program;
        _token = options.Token;
        _client = new KvClient(new KvClientOptions { Endpoints = options.Endpoints, Tls = options.Tls });
        _reading = new(() => StatusAsync(new GetStatusRequest { Activity = true }), ReadingAgeMax);
        _history = new(() => StatusAsync(new GetStatusRequest { History = true }), HistoryAgeMax);
        _findings = new(() => ClusterFindings.ReadAsync(_client.Admin), FindingsAgeMax);
        _keys = new KeyBrowser(_client);
        _api = new ApiEndpoint(_token, options.KeysNeedToken, options.Hosts, TimeProvider.System, log);
    }

    /// <summary>Adds the console to an admin port.</summary>
    /// <param name="admin">The admin port; null if there is none.</param>
    /// <returns>The console, to be disposed when the program stops; null without an admin port.</returns>
    /// <exception cref="KvException">A TLS file is not usable.</exception>
    public static ClusterConsole? Add(AdminServer? admin, ConsoleOptions options, ILoggerFactory logs)
    {
        if (admin is null)
            return null;
        var console = new ClusterConsole(options, logs.CreateLogger<ClusterConsole>());
        admin.Add([.. PageFiles.Endpoints(), .. console.Endpoints()]);
        return console;
    }

    public ValueTask DisposeAsync() => _client.DisposeAsync();

    private async Task<(GetStatusResponse Status, DateTimeOffset At)> StatusAsync(GetStatusRequest request) =>
        (await _client.Admin.GetStatusAsync(request, NodeLimit, CancellationToken.None).ConfigureAwait(false), TimeProvider.System.GetUtcNow());

    private IEnumerable<AdminEndpoint> Endpoints() =>
    [
        _api.Get("/api/overview", Access.Open, async (request, stop) =>
            Overview.Of(_program, _token.IsSet, _api.MaySeeKeys(request), await _reading.ReadAsync(stop).ConfigureAwait(false))),
        _api.Get("/api/history", Access.Open, async (_, stop) => History.Of(await _history.ReadAsync(stop).ConfigureAwait(false))),
        _api.Get("/api/findings", Access.Open, (_, stop) => _findings.ReadAsync(stop)),
        _api.Get("/api/keys", Access.Keys, (request, stop) => _keys.ListAsync(Key(request, "prefix"), Key(request, "after"), Limit(request), stop)),
        _api.Get("/api/value", Access.Keys, (request, stop) => _keys.ReadAsync(Key(request, "key"), stop)),
        _api.Get("/api/token", Access.Change, static (_, _) => Task.FromResult<object>(new { })),
        _api.Post<PutCommand>("/api/put", _keys.PutAsync),
        _api.Post<DeleteCommand>("/api/delete", _keys.DeleteAsync),
        _api.Post<TransferCommand>("/api/transfer", async (transfer, stop) =>
            new { Leader = await _client.Admin.TransferAsync(transfer.Shard, transfer.Node is > 0 and var node ? node : null, stop).ConfigureAwait(false) }),
        _api.Post<DrainCommand>("/api/drain", async (drain, stop) =>
        {
            var outcome = await _client.Admin.DrainAsync(drain.Node, drain.Draining, cancellationToken: stop).ConfigureAwait(false);
            return new { Transferred = outcome.GivenAway, Kept = outcome.Kept.Select(kept => new { Shard = kept.Key, Reason = kept.Value }) };
        }),
    ];

    // Encoded as base64url, because keys are bytes.
    private static ReadOnlyMemory<byte> Key(HttpRequest request, string name)
    {
        try
        {
            return Base64Url.DecodeFromChars(request.Query[name].ToString());
        }
        catch (FormatException)
        {
            throw new BadRequestException($"{name} is not base64url.");
        }
    }

    private static int Limit(HttpRequest request) =>
        int.TryParse(request.Query["limit"], NumberStyles.None, CultureInfo.InvariantCulture, out var limit) && limit is > 0 and <= KeyBrowser.RowsMax
            ? limit
            : throw new BadRequestException($"limit must be from 1 to {KeyBrowser.RowsMax}.");
}
