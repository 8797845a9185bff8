using System.Globalization;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Telemetry;

/// <summary>
/// Measures how long each alert of a fault takes to fire. The time begins with the fault, or, where that takes time to come about, when a
/// <see cref="FaultSign"/> shows it. The alert may take the window and the wait of its rule, one scrape and one evaluation, and what the machine takes: what a
/// bare loop loses meanwhile, and by how much a scrape was late or slow, or an evaluation late. A scrape that fails although its target runs interrupts series
/// and so begins every wait anew.
/// </summary>
internal sealed class FaultWatch
{
    private readonly ScrapedCluster _scraped;
    private readonly BareLoop _loop;
    private readonly Func<Task<IReadOnlySet<string>>> _firing;
    private readonly Action<string> _say;
    private readonly List<Watched> _missing;

    private FaultWatch(ScrapedCluster scraped, BareLoop loop, Func<Task<IReadOnlySet<string>>> firing, Action<string> say, List<Watched> missing) =>
        (_scraped, _loop, _firing, _say, _missing) = (scraped, loop, firing, say, missing);

    /// <summary>The alerts that have not fired yet, with what their signs showed, for people.</summary>
    public string Missing => string.Join(" and ", _missing.Select(static alert => alert.ToString()));

    /// <summary>Begins, before the fault.</summary>
    /// <param name="scraped">The cluster.</param>
    /// <param name="loop">Runs on the same machine.</param>
    /// <param name="alerts">The alerts that the fault is to cause.</param>
    /// <param name="signs">For the alerts whose faults take time to come about.</param>
    /// <param name="firing">The names of the alerts that fire now.</param>
    /// <param name="say">Gets a line for each alert.</param>
    public static async Task<FaultWatch> BeginAsync(
        ScrapedCluster scraped,
        BareLoop loop,
        IEnumerable<string> alerts,
        IReadOnlyDictionary<string, FaultSign> signs,
        Func<Task<IReadOnlySet<string>>> firing,
        Action<string> say)
    {
        var missing = new List<Watched>();
        foreach (var alert in alerts)
            missing.Add(signs.TryGetValue(alert, out var sign) ? new Watched(alert, sign, await sign.ReadAsync(scraped)) : new Watched(alert, null, []));
        var watch = new FaultWatch(scraped, loop, firing, say, missing);
        watch.Again();
        return watch;
    }

    /// <summary>The fault has been made again, because once was not enough.</summary>
    public void Again()
    {
        foreach (var alert in _missing)
            alert.Begin(_loop.Lost);
    }

    /// <summary>Whether all alerts have fired, each in time. Called again and again.</summary>
    public async Task<bool> FiredAsync()
    {
        foreach (var alert in _missing)
        {
            if (alert.Sign is not { } sign)
                continue;
            // One that comes and goes begins again.
            alert.Now = await sign.ReadAsync(_scraped);
            var isThere = sign.IsThere(alert.Now, alert.Before);
            if (isThere && !alert.IsThere)
                alert.Begin(_loop.Lost);
            alert.IsThere = isThere;
        }
        var firing = await _firing();
        foreach (var alert in _missing.Where(alert => firing.Contains(alert.Name)).ToList())
        {
            await JudgeAsync(alert);
            _missing.Remove(alert);
        }
        return _missing.Count == 0;
    }

    private async Task JudgeAsync(Watched alert)
    {
        if (!alert.IsThere)
        {
            // By another series than the sign's, or in the moment between two looks.
            _say($"{alert.Name} fired after no time: before the fault was seen at its source");
            return;
        }
        var interval = PrometheusServer.Interval;
        var lost = _loop.Lost - alert.LostBefore;
        var looked = DateTime.UtcNow - alert.Began + (5 * interval);
        // An alert of a slow disk may be caused by the machine, and is no fault's.
        var fired = (await _scraped.Prometheus.SamplesAsync($"ALERTS{{alertname=\"{alert.Name}\",alertstate=\"firing\",kvcluster_disk!=\"slow\"}}", looked))
            .SelectMany(static series => series.Samples)
            .Select(static sample => sample.At).Where(at => at >= alert.Began).DefaultIfEmpty(DateTime.UtcNow).Min();
        var scrapes = await _scraped.Prometheus.SamplesAsync("up{job=\"kvcluster\"}", looked);
        var began = scrapes.Where(series => _scraped.Runs(series.Instance)).SelectMany(static series => series.Samples)
            .Where(sample => sample.Value == 0 && sample.At > alert.Began && sample.At < fired)
            .Select(static sample => sample.At).DefaultIfEmpty(alert.Began).Max();
        // Each evaluation of a rule that waits or fires writes a sample, whose value is since when. Between two values the alert was gone, and no evaluation
        // was late.
        var evaluated = await _scraped.Prometheus.SamplesAsync($"ALERTS_FOR_STATE{{alertname=\"{alert.Name}\"}}", looked);
        var late = LateIn(scrapes, isOfOneValue: false) + LateIn(evaluated, isOfOneValue: true);
        var slow = (await _scraped.Prometheus.SamplesAsync("scrape_duration_seconds{job=\"kvcluster\"}", looked))
            .SelectMany(static series => series.Samples).Select(static sample => TimeSpan.FromSeconds(sample.Value)).DefaultIfEmpty(TimeSpan.Zero).Max();
        var machine = lost + slow + late;
        var (window, wait) = TelemetryFiles.WaitsOf(alert.Name);
        // A wait ends with an evaluation.
        var limit = window + (Math.Ceiling(wait / interval) * interval) + (2 * interval) + machine;
        var line = string.Create(
            CultureInfo.InvariantCulture,
            $"{alert.Name} fired after {(fired - began).TotalSeconds:F1} s, of at most {limit.TotalSeconds:F1}: window {window.TotalSeconds:F1}, "
            + $"for {wait.TotalSeconds:F1}, scrape and evaluation {2 * interval.TotalSeconds:F0}, machine {machine.TotalSeconds:F1}");
        _say(line);
        Assert.True(fired - began <= limit, line);
    }

    // By how much a sample came later than one interval after the one before it, or only after one of the same value.
    private static TimeSpan LateIn(IReadOnlyList<SampledSeries> series, bool isOfOneValue) =>
        series.SelectMany(static one => one.Samples.Zip(one.Samples.Skip(1)))
            .Where(pair => !isOfOneValue || pair.First.Value == pair.Second.Value)
            .Select(static pair => pair.Second.At - pair.First.At - PrometheusServer.Interval)
            .Append(TimeSpan.Zero).Max();

    /// <summary>An alert that has not fired yet.</summary>
    private sealed class Watched(string name, FaultSign? sign, IReadOnlyList<double?> before)
    {
        public string Name => name;

        /// <summary>What shows that the fault is there; null if it is when it was made.</summary>
        public FaultSign? Sign { get; } = sign;

        public bool IsThere { get; set; } = sign is null;

        public IReadOnlyList<double?> Before { get; } = before;

        /// <summary>What the sign showed last.</summary>
        public IReadOnlyList<double?> Now { get; set; } = before;

        public DateTime Began { get; private set; }

        public TimeSpan LostBefore { get; private set; }

        public void Begin(TimeSpan lost) => (Began, LostBefore) = (DateTime.UtcNow, lost);

        public override string ToString() => Sign is null ? Name : string.Create(
            CultureInfo.InvariantCulture, $"{Name} ({Sign.Metric} was [{string.Join(", ", Before)}] and is [{string.Join(", ", Now)}])");
    }
}
