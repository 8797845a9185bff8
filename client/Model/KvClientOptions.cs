using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Client;

/// <summary>How a <see cref="KvClient"/> reaches its cluster. A client goes on with the options that it was created with when they are changed.</summary>
public sealed class KvClientOptions
{
    /// <summary>The maximum size of a table of open calls.</summary>
    private const int CallsInFlightUpperLimit = 65_536;

    private static readonly string[] EndpointsDefault = ["http://127.0.0.1:7400"];

    /// <summary>
    /// Addresses from which to load the shard map, "http://host:port" or "https://host:port", of routers or nodes of one cluster. One that answers is enough.
    /// An address that belongs to another cluster than those that answered before is not used. Null, if it is not set, means "http://127.0.0.1:7400".
    /// </summary>
    /// <remarks>The default is no list, because a binder of configuration appends to a list that is there.</remarks>
    public IReadOnlyList<string>? Endpoints { get; set; }

    /// <summary>The addresses.</summary>
    internal IReadOnlyList<string> EndpointsInUse => Endpoints ?? EndpointsDefault;

    /// <summary>
    /// Send every call to the endpoints, which are routers, in turn, and let them route it. This is for networks where the nodes' own addresses are not
    /// reachable. An endpoint that cannot be reached is skipped for a moment. By default the client talks to the nodes itself, which saves a hop.
    /// </summary>
    public bool Gateway { get; set; }

    /// <summary>
    /// Identify every change, so that one whose outcome became unknown is settled by repeating it, also after a failover and by another route. It is applied
    /// once, and the caller gets its first answer. This costs a round trip with the first change of each shard. Without it such a change fails at once with
    /// <see cref="KvOutcomeUnknownException"/>.
    /// </summary>
    public bool ExactlyOnce { get; set; } = true;

    /// <summary>How up to date reads must be that do not specify it themselves, and which replicas may serve them.</summary>
    public KvReadMode Read { get; set; } = KvReadMode.Leader;

    /// <summary>
    /// The maximum time of a call with all its retries; at most a day. The default is long enough for the failover of a leader. A call can have another one
    /// (<see cref="KvCallOptions.Timeout"/>).
    /// </summary>
    public TimeSpan Timeout { get; set; } = TimeSpan.FromSeconds(10);

    /// <summary>For https endpoints. Null means to trust the machine's authorities and present no certificate.</summary>
    public KvTlsOptions? Tls { get; set; }

    /// <summary>
    /// Asked for the value of the header "authorization", such as "Bearer " and a token, of each request to an https address of the cluster: of the stream that
    /// carries the calls on keys, when it is opened, and of each scan, watch and operator's call. Null as its answer means none. It is called on any thread and
    /// should answer from memory; the request fails if it throws. Nodes and routers ignore the header. It is for what stands before them and admits callers by
    /// it.
    /// </summary>
    public Func<Uri, CancellationToken, ValueTask<string?>>? Authorization { get; set; }

    /// <summary>How many calls may wait for an answer from one node, up to 65,536. Further calls wait for a place.</summary>
    public int CallsInFlightMax { get; set; } = 4096;

    /// <summary>Gets what no caller is told: endpoints of another cluster, and bugs.</summary>
    public ILogger Log { get; set; } = NullLogger.Instance;

    /// <summary>
    /// The client is for one read of a key, as a command is. The read is sent to the endpoint at once, if there is only one, and the map of the shards is
    /// fetched only if the endpoint does not serve it.
    /// </summary>
    internal bool IsForOneRead { get; set; }

    /// <summary>What is wrong with settings that were read from text (<see cref="ClientSettings"/>). <see cref="Mistakes"/> has it, too.</summary>
    internal List<string> MistakesOfText { get; } = [];

    /// <summary>The path of a section of configuration that was read and has no setting; empty for the whole configuration, null if there is none.</summary>
    internal string? EmptySection { get; set; }

    /// <summary>
    /// Reads a connection string: addresses, separated by commas, and then other settings, each behind a semicolon, with the names that they have here:
    /// <c>http://kv-0:7400,http://kv-1:7400;Timeout=00:00:05;Read=Session;Tls:AuthorityFile=/etc/kv/ca.pem</c>. A value cannot have a semicolon.
    /// </summary>
    /// <exception cref="ArgumentException">It is not a connection string, or its values are invalid; the message lists every mistake.</exception>
    public static KvClientOptions FromConnectionString(string connectionString)
    {
        ArgumentNullException.ThrowIfNull(connectionString);
        var options = new KvClientOptions();
        ClientSettings.ReadConnectionString(options, "The connection string", connectionString);
        options.Validate();
        return options;
    }

    /// <summary>A copy, which stays as it is when these options are changed.</summary>
    internal KvClientOptions Copy()
    {
        var copy = (KvClientOptions)MemberwiseClone();
        copy.Endpoints = Endpoints?.ToArray();
        return copy;
    }

    // A password or a token in an address must not get into a log.
    private static string WithoutSecrets(string endpoint, Uri address) =>
        address.UserInfo.Length + address.Query.Length == 0 ? endpoint : $"{address.Scheme}://{address.Authority}{address.AbsolutePath}";

    /// <exception cref="ArgumentException">The options are invalid; the message lists every mistake.</exception>
    internal void Validate()
    {
        if (Mistakes() is { Count: > 0 } mistakes)
            throw new ArgumentException(string.Join(" ", mistakes));
    }

    /// <summary>What is wrong with the options, a sentence for each mistake. The files of <see cref="Tls"/> are not looked at.</summary>
    internal List<string> Mistakes()
    {
        List<string> mistakes = [.. MistakesOfText];
        if (Endpoints is null && EmptySection is { } section)
            mistakes.Add(section.Length == 0
                ? $"The configuration is empty, and nothing else sets the endpoints. Set {nameof(Endpoints)}."
                : $"The section {section} is missing or empty, and nothing else sets the endpoints. Set {section}:{nameof(Endpoints)}.");
        if (EndpointsInUse.Count == 0)
            mistakes.Add($"{nameof(Endpoints)} is empty; a client needs at least one.");
        foreach (var endpoint in EndpointsInUse)
        {
            var shown = endpoint?.Contains('@', StringComparison.Ordinal) == true ? "one" : $"'{endpoint}'";
            if (!Uri.TryCreate(endpoint, UriKind.Absolute, out var address) || address.Scheme is not ("http" or "https") || address.Host.Length == 0)
                mistakes.Add($"{nameof(Endpoints)}: {shown} is not an address like http://host:port.");
            else if (address.PathAndQuery != "/" || address.UserInfo.Length > 0)
                mistakes.Add($"{nameof(Endpoints)}: '{WithoutSecrets(endpoint, address)}' must have only a host and a port.");
        }
        if (!Enum.IsDefined(Read))
            mistakes.Add($"{nameof(Read)}: there is no read mode {(int)Read}.");
        if (Timeout <= TimeSpan.Zero || Timeout > KvCallOptions.TimeoutMax)
            mistakes.Add($"{nameof(Timeout)} is {Timeout}; it must be greater than zero and at most {KvCallOptions.TimeoutMax.TotalHours} hours.");
        if (CallsInFlightMax is < 1 or > CallsInFlightUpperLimit)
            mistakes.Add($"{nameof(CallsInFlightMax)} is {CallsInFlightMax}; it must be from 1 to {CallsInFlightUpperLimit}.");
        mistakes.AddRange(Tls?.Mistakes() ?? []);
        if (Authorization is not null && EndpointsInUse.Any(static endpoint => endpoint?.StartsWith("http:", StringComparison.OrdinalIgnoreCase) == true))
            mistakes.Add($"{nameof(Authorization)} is sent to https addresses only, and {nameof(Endpoints)} has others.");
        if (Log is null)
            mistakes.Add($"{nameof(Log)} is null.");
        return mistakes;
    }
}
