using System.Diagnostics;
using System.Globalization;
using System.Text.Json;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Telemetry;

/// <summary>A real Prometheus, which scrapes targets and evaluates rules once a second, and accepts OTLP if its version does.</summary>
internal sealed class PrometheusServer : IAsyncDisposable
{
    private readonly Process _process;
    private readonly HttpClient _http;
    private readonly List<string> _log = [];

    private PrometheusServer(Process process, string address)
    {
        _process = process;
        _http = new HttpClient { BaseAddress = new Uri(address) };
        foreach (var handler in new Action<DataReceivedEventHandler>[] { h => process.OutputDataReceived += h, h => process.ErrorDataReceived += h })
            handler((_, line) => Keep(line.Data));
        process.BeginOutputReadLine();
        process.BeginErrorReadLine();
    }

    /// <summary>From one scrape to the next, and from one evaluation of the rules to the next.</summary>
    public static readonly TimeSpan Interval = TimeSpan.FromSeconds(1);

    /// <summary>Its address.</summary>
    public Uri Address => _http.BaseAddress!;

    /// <summary>The program used: the first that accepts OTLP, or else the first. Null if there is none.</summary>
    public static string? Program { get; } = Tools.FindAll("prometheus").FirstOrDefault(TakesOtlp) ?? Tools.Find("prometheus");

    /// <summary>Whether <see cref="Program"/> accepts OTLP.</summary>
    public static bool HasOtlp { get; } = Program is not null && TakesOtlp(Program);

    /// <param name="folder">The directory for its data and configuration.</param>
    /// <param name="port">The port to listen on.</param>
    /// <param name="targets">host:port of admin ports.</param>
    /// <param name="rules">The text of a rule file.</param>
    public static async Task<PrometheusServer> StartAsync(string folder, int port, IEnumerable<string> targets, string rules)
    {
        Directory.CreateDirectory(folder);
        await File.WriteAllTextAsync(Path.Combine(folder, "rules.yaml"), rules);
        await File.WriteAllTextAsync(Path.Combine(folder, "prometheus.yaml"), $"""
            global:
              scrape_interval: {Interval.Seconds}s
              scrape_timeout: {Interval.Seconds}s
              evaluation_interval: {Interval.Seconds}s
            rule_files: [rules.yaml]
            scrape_configs:
              - job_name: kvcluster
                static_configs:
                  - targets: [{string.Join(", ", targets.Select(target => $"'{target}'"))}]
            """);
        var address = string.Create(CultureInfo.InvariantCulture, $"127.0.0.1:{port}");
        string[] arguments =
        [
            $"--config.file={Path.Combine(folder, "prometheus.yaml")}",
            $"--storage.tsdb.path={Path.Combine(folder, "data")}", $"--web.listen-address={address}",
            .. HasOtlp ? new[] { "--web.enable-otlp-receiver" } : [],
        ];
        var process = Process.Start(new ProcessStartInfo(Program!, arguments) { RedirectStandardOutput = true, RedirectStandardError = true })!;
        var server = new PrometheusServer(process, $"http://{address}");
        await Eventually.TrueAsync(server.IsReadyAsync, $"Prometheus is ready: {server.LastLines()}");
        return server;
    }

    /// <summary>The number of series of a query that existed at some time from then to now.</summary>
    public async Task<int> CountAsync(string query, DateTime since)
    {
        var range = string.Create(CultureInfo.InvariantCulture, $"start={Unix(since)}&end={Unix(DateTime.UtcNow)}&step=1");
        using var answer = JsonDocument.Parse(await GetAsync($"api/v1/query_range?query={Uri.EscapeDataString(query)}&{range}"));
        return answer.RootElement.GetProperty("data").GetProperty("result").GetArrayLength();
    }

    /// <summary>The current series of a query with labels and values, for people.</summary>
    public async Task<IReadOnlyList<string>> ValuesAsync(string query)
    {
        using var answer = JsonDocument.Parse(await GetAsync($"api/v1/query?query={Uri.EscapeDataString(query)}"));
        return [.. answer.RootElement.GetProperty("data").GetProperty("result").EnumerateArray()
            .Select(series => $"{{{LabelsOf(series.GetProperty("metric"))}}} {series.GetProperty("value")[1].GetString()}")];
    }

    /// <summary>The samples of each series of a selector, as they were scraped or evaluated.</summary>
    /// <param name="selector">With values that are numbers.</param>
    /// <param name="last">How far back.</param>
    public async Task<IReadOnlyList<SampledSeries>> SamplesAsync(string selector, TimeSpan last)
    {
        var query = string.Create(CultureInfo.InvariantCulture, $"{selector}[{Math.Ceiling(last.TotalSeconds)}s]");
        using var answer = JsonDocument.Parse(await GetAsync($"api/v1/query?query={Uri.EscapeDataString(query)}"));
        return
        [
            .. answer.RootElement.GetProperty("data").GetProperty("result").EnumerateArray().Select(static series => new SampledSeries(
                series.GetProperty("metric").TryGetProperty("instance", out var instance) ? instance.GetString()! : "",
                [
                    .. series.GetProperty("values").EnumerateArray().Select(static sample =>
                        (DateTime.UnixEpoch.AddSeconds(sample[0].GetDouble()), double.Parse(sample[1].GetString()!, CultureInfo.InvariantCulture))),
                ])),
        ];
    }

    /// <summary>The names of all metrics of an instance with this prefix.</summary>
    public async Task<IReadOnlySet<string>> NamesAsync(string instance, string prefix)
    {
        using var answer = JsonDocument.Parse(
            await GetAsync($"api/v1/label/__name__/values?match[]={Uri.EscapeDataString($"{{instance=\"{instance}\",__name__=~\"{prefix}.*\"}}")}"));
        return answer.RootElement.GetProperty("data").EnumerateArray().Select(name => name.GetString()!).ToHashSet();
    }

    /// <summary>The alerts that fire now, one for each series.</summary>
    public async Task<IReadOnlyList<FiringAlert>> FiringAsync()
    {
        using var answer = JsonDocument.Parse(await GetAsync("api/v1/alerts"));
        return
        [
            .. answer.RootElement.GetProperty("data").GetProperty("alerts").EnumerateArray()
                .Where(alert => alert.GetProperty("state").GetString() == "firing")
                .Select(alert => new FiringAlert(
                    alert.GetProperty("labels").GetProperty("alertname").GetString()!,
                    LabelsOf(alert.GetProperty("labels")),
                    alert.GetProperty("value").GetString()!)),
        ];
    }

    /// <summary>Waits until each of these queries has had a series at some time since then.</summary>
    public async Task UntilDataAsync(IEnumerable<string> queries, DateTime since)
    {
        var missing = queries.Distinct().ToList();
        await Eventually.TrueAsync(async () =>
        {
            foreach (var query in missing.ToArray())
            {
                if (await CountAsync(query, since) > 0)
                    missing.Remove(query);
            }
            return missing.Count == 0;
        }, () => $"data of {string.Join("\n", missing)}");
    }

    public async ValueTask DisposeAsync()
    {
        _http.Dispose();
        _process.Kill();
        await _process.WaitForExitAsync();
        _process.Dispose();
    }

    private static bool TakesOtlp(string program)
    {
        using var help = Process.Start(new ProcessStartInfo(program, ["--help"]) { RedirectStandardOutput = true, RedirectStandardError = true })!;
        var said = help.StandardError.ReadToEndAsync();
        return $"{help.StandardOutput.ReadToEnd()}{said.Result}".Contains("web.enable-otlp-receiver", StringComparison.Ordinal);
    }

    private static string LabelsOf(JsonElement labels) =>
        string.Join(", ", labels.EnumerateObject().Where(static label => label.Name is not ("alertname" or "__name__"))
            .Select(static label => $"{label.Name}={label.Value.GetString()}"));

    private static long Unix(DateTime time) => new DateTimeOffset(time).ToUnixTimeSeconds();

    private async Task<string> GetAsync(string path)
    {
        using var answer = await _http.GetAsync(path);
        var text = await answer.Content.ReadAsStringAsync();
        Assert.True(answer.IsSuccessStatusCode, $"{Uri.UnescapeDataString(path)}: {text}");
        return text;
    }

    private async Task<bool> IsReadyAsync()
    {
        Assert.False(_process.HasExited, LastLines());
        try
        {
            using var answer = await _http.GetAsync("-/ready");
            return answer.IsSuccessStatusCode;
        }
        catch (HttpRequestException)
        {
            // It does not listen yet.
            return false;
        }
    }

    private void Keep(string? line)
    {
        lock (_log)
        {
            if (line is not null)
                _log.Add(line);
        }
    }

    private string LastLines()
    {
        lock (_log)
            return string.Join('\n', _log.TakeLast(5));
    }
}

/// <summary>The samples of one series, the oldest first.</summary>
/// <param name="Instance">Its label of that name, or "".</param>
/// <param name="Samples">The time and the value of each.</param>
internal sealed record SampledSeries(string Instance, IReadOnlyList<(DateTime At, double Value)> Samples);
