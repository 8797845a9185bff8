using System.CommandLine;
using System.Globalization;
using System.Text;
using KvCluster.Node.Coordination;
using KvCluster.Node.Hosting;
using KvCluster.Replication;
using KvCluster.Security;
using KvCluster.Storage;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node;

/// <summary>The commands of kv-node, their options, and the checks that give one clear line for each mistake.</summary>
internal static class CommandLine
{
    private const int KeyBytesMax = 2048;

    private static readonly Option<uint> Node = new("--node") { Description = "The node's id, from 1 on.", Required = true, HelpName = "N" };
    private static readonly Option<string> Data = new("--data") { Description = "Folder for the data; one process uses it at a time.", Required = true, HelpName = "DIR" };
    private static readonly Option<string> Listen = new("--listen") { Description = "Where to listen: http://127.0.0.1:7401.", Required = true, HelpName = "URL" };
    private static readonly Option<string?> Advertise = new("--advertise") { Description = "Where others reach this node, if not where it listens.", HelpName = "URL" };
    private static readonly Option<string> Coordinator = new("--coordinator") { Description = "The coordinator, all its members: etcd=http://10.0.0.1:2379,http://10.0.0.2:2379 or etcd=https://...", Required = true, HelpName = "KIND=URLS" };
    private static readonly Option<string?> CoordinatorCa = new("--coordinator-ca") { Description = "With https: PEM file of the authorities that signed the coordinator's certificates (default: the machine's).", HelpName = "FILE" };
    private static readonly Option<string?> CoordinatorCert = new("--coordinator-cert") { Description = "With https: PEM file of the client certificate to show.", HelpName = "FILE" };
    private static readonly Option<string?> CoordinatorKey = new("--coordinator-key") { Description = "PEM file of that certificate's private key.", HelpName = "FILE" };
    private static readonly Option<string?> CoordinatorUser = new("--coordinator-user") { Description = "User of the coordinator.", HelpName = "NAME" };
    private static readonly Option<string?> CoordinatorPasswordFile = new("--coordinator-password-file") { Description = "File with that user's password, a line.", HelpName = "FILE" };
    private static readonly Option<string> Cluster = new("--cluster") { Description = "The cluster's name.", DefaultValueFactory = _ => "local", HelpName = "NAME" };
    private static readonly Option<int?> JournalRetention = new("--journal-retention-mib")
    {
        Description = "Journal that each shard keeps, beyond what a checkpoint covers, so that a follower that was away needs no snapshot (default 256).",
        HelpName = "MIB",
    };
    private static readonly Option<int?> DigestInterval = new("--digest-interval-minutes")
    {
        Description = "How often a shard's leader here has the replicas' trees compared (default 60; 0: never).",
        HelpName = "MINUTES",
    };
    private static readonly Option<bool> UntilStdinEnds = new("--until-stdin-ends") { Description = "Stop when standard input ends, as on SIGTERM." };
    private static readonly Option<string> Nodes = new("--nodes") { Description = "The ids of the cluster's nodes, separated by commas: 1,2,3", Required = true, HelpName = "IDS" };
    private static readonly Option<int?> Replicas = new("--replicas") { Description = "Replicas of each shard (default 3, at most the nodes).", HelpName = "N" };
    private static readonly Option<string?> SplitAt = new("--split-at") { Description = "Keys at which shards begin, separated by commas: files/,packages/", HelpName = "KEYS" };

    // A node takes up to four seconds to stop; after that the process ends all the same.
    private static readonly TimeSpan StopLimit = TimeSpan.FromSeconds(4.5);

    /// <summary>Runs a command.</summary>
    /// <returns>The exit code.</returns>
    public static async Task<int> InvokeAsync(string[] arguments)
    {
        var parsed = Create().Parse(arguments);
        if (parsed.Errors.Count > 0)
            return Tell(string.Join(" ", parsed.Errors.Select(error => error.Message)) + " (--help lists the options)", ExitCodes.Usage);
        try
        {
            return await parsed.InvokeAsync(new InvocationConfiguration { EnableDefaultExceptionHandler = false, ProcessTerminationTimeout = StopLimit }).ConfigureAwait(false);
        }
        catch (OperationCanceledException)
        {
            return ExitCodes.Stopped;
        }
        catch (Exception failure)
        {
            return Tell(failure.Message, failure switch
            {
                UsageException or UnusableFileException => ExitCodes.Usage,
                DirectoryFormatException => ExitCodes.OtherFormat,
                IOException or StaleDirectoryException or ForeignDirectoryException or CoordinatorUnavailableException => ExitCodes.Unavailable,
                _ => ExitCodes.Internal,
            });
        }
    }

    private static int Tell(string line, int exitCode)
    {
        Console.Error.WriteLine($"kv-node: {line}");
        return exitCode;
    }

    private static RootCommand Create()
    {
        var run = new Command("run", "Runs a node until SIGTERM or Ctrl-C.") { Node, Data, Listen, Advertise, Coordinator, CoordinatorCa, CoordinatorCert, CoordinatorKey, CoordinatorUser, CoordinatorPasswordFile, Cluster, JournalRetention, DigestInterval, UntilStdinEnds };
        run.SetAction(RunAsync);
        var init = new Command("init", "Creates a cluster: its shards and where their replicas lie.") { Coordinator, CoordinatorCa, CoordinatorCert, CoordinatorKey, CoordinatorUser, CoordinatorPasswordFile, Cluster, Nodes, Replicas, SplitAt };
        init.SetAction(InitAsync);
        var coordinator = new Command("coordinator", "Serves the embedded coordinator to other processes.") { Data, Listen, UntilStdinEnds };
        coordinator.SetAction(CoordinateAsync);
        return new RootCommand("A node of a KvCluster.") { run, init, coordinator };
    }

    private static async Task<int> RunAsync(ParseResult arguments, CancellationToken stop)
    {
        var options = new NodeOptions
        {
            Node = arguments.GetRequiredValue(Node) is > 0 and var node ? node : throw new UsageException("--node: ids begin at 1."),
            DataDirectory = FolderIn(arguments),
            Listen = UrlIn(Listen.Name, arguments.GetRequiredValue(Listen)),
            Advertise = arguments.GetValue(Advertise) is { } advertise ? UrlIn(Advertise.Name, advertise) : null,
            Cluster = ClusterIn(arguments),
            Replication = ReplicationIn(arguments),
            Storage = StorageIn(arguments),
        };
        var etcd = EtcdOptionsIn(arguments);
        using var logs = CreateLogs();
        using var stopping = StopWith(arguments, stop);
        await using var coordinator = new EtcdCoordinator(etcd, logs.CreateLogger<EtcdCoordinator>());
        var host = await NodeHost.StartAsync(options, coordinator, logs, stopping.Token).ConfigureAwait(false);
        if (await Task.WhenAny(WaitAsync(stopping.Token), host.DiskFailed).ConfigureAwait(false) == host.DiskFailed)
        {
            var failure = await host.DiskFailed.ConfigureAwait(false);
            await Console.Error.WriteLineAsync($"kv-node: {failure.Message}. The node ends without another write; start it again when the disk works.").ConfigureAwait(false);
            return ExitCodes.DiskFailed;
        }
        await host.DisposeAsync().ConfigureAwait(false);
        return ExitCodes.Stopped;
    }

    private static async Task<int> InitAsync(ParseResult arguments, CancellationToken stop)
    {
        var nodes = NodesIn(arguments.GetRequiredValue(Nodes));
        var replicas = arguments.GetValue(Replicas) ?? Math.Min(3, nodes.Count);
        if (replicas < 1 || replicas > nodes.Count)
            throw new UsageException($"--replicas takes 1 to {nodes.Count}, the number of nodes.");
        var splitKeys = SplitKeysIn(arguments.GetValue(SplitAt));
        var etcd = EtcdOptionsIn(arguments);
        using var logs = CreateLogs();
        await using var coordinator = new EtcdCoordinator(etcd, logs.CreateLogger<EtcdCoordinator>());
        var cluster = ClusterIn(arguments);
        if (!await ClusterInit.CreateAsync(coordinator, cluster, nodes, replicas, splitKeys, stop).ConfigureAwait(false))
            return Tell($"The cluster '{cluster}' exists already; nothing was changed.", ExitCodes.Unavailable);
        Console.WriteLine($"Created the cluster '{cluster}': {splitKeys.Count + 1} shards of {replicas} replicas on {nodes.Count} nodes.");
        return ExitCodes.Stopped;
    }

    private static async Task<int> CoordinateAsync(ParseResult arguments, CancellationToken stop)
    {
        var listen = UrlIn(Listen.Name, arguments.GetRequiredValue(Listen));
        using var logs = CreateLogs();
        using var stopping = StopWith(arguments, stop);
        await using var coordinator = EmbeddedCoordinator.Open(FolderIn(arguments), TimeProvider.System);
        await using var server = await CoordinatorServer.StartAsync(coordinator, listen, logs, stopping.Token).ConfigureAwait(false);
        await WaitAsync(stopping.Token).ConfigureAwait(false);
        return ExitCodes.Stopped;
    }

    private static Task WaitAsync(CancellationToken stop) => Task.Delay(Timeout.Infinite, stop).ContinueWith(_ => { }, TaskScheduler.Default);

    private static CancellationTokenSource StopWith(ParseResult arguments, CancellationToken stop)
    {
        var stopping = CancellationTokenSource.CreateLinkedTokenSource(stop);
        if (arguments.GetValue(UntilStdinEnds))
            new Thread(() => ReadToEnd(stopping)) { IsBackground = true, Name = "stdin" }.Start();
        return stopping;
    }

    // A thread of its own: reads of a console cannot be cancelled.
    private static void ReadToEnd(CancellationTokenSource stopping)
    {
        using var input = Console.OpenStandardInput();
        var discarded = new byte[256];
        while (input.Read(discarded) > 0)
        {
        }
        try
        {
            stopping.Cancel();
        }
        catch (ObjectDisposedException)
        {
            // It stops already.
        }
    }

    private static ILoggerFactory CreateLogs() => LoggerFactory.Create(logging => logging.SetMinimumLevel(LogLevel.Information).AddFilter("Microsoft", LogLevel.Warning).AddSimpleConsole(console =>
    {
        console.SingleLine = true;
        console.UseUtcTimestamp = true;
        console.TimestampFormat = "yyyy-MM-ddTHH:mm:ss.fffZ ";
    }));

    private static string FolderIn(ParseResult arguments) =>
        arguments.GetRequiredValue(Data) is { Length: > 0 } folder ? Path.GetFullPath(folder) : throw new UsageException("--data names no folder.");

    private static string UrlIn(string option, string text) => UrlIn(option, text, Uri.UriSchemeHttp);

    private static string UrlIn(string option, string text, string scheme) =>
        Uri.TryCreate(text, UriKind.Absolute, out var url) && url.Scheme == scheme && url.AbsolutePath == "/"
            ? url.GetLeftPart(UriPartial.Authority)
            : throw new UsageException($"{option}: '{text}' is not of the form {scheme}://host:port.");

    private static EtcdOptions EtcdOptionsIn(ParseResult arguments)
    {
        const string kind = "etcd=";
        var text = arguments.GetRequiredValue(Coordinator);
        if (!text.StartsWith(kind, StringComparison.Ordinal))
            throw new UsageException($"--coordinator: '{text}' is not of the form etcd=http://host:port,http://host:port.");
        var scheme = text.StartsWith(kind + "https:", StringComparison.Ordinal) ? Uri.UriSchemeHttps : Uri.UriSchemeHttp;
        var options = new EtcdOptions
        {
            Endpoints = [.. text[kind.Length..].Split(',').Select(url => UrlIn(Coordinator.Name, url, scheme)).Distinct()],
            AuthorityFile = arguments.GetValue(CoordinatorCa),
            CertificateFile = arguments.GetValue(CoordinatorCert),
            KeyFile = arguments.GetValue(CoordinatorKey),
            User = arguments.GetValue(CoordinatorUser),
            Password = arguments.GetValue(CoordinatorPasswordFile) is { } file ? PasswordIn(file) : "",
        };
        if (scheme == Uri.UriSchemeHttp && (options.AuthorityFile ?? options.CertificateFile ?? options.KeyFile) is not null)
            throw new UsageException("--coordinator: certificates are for https:// only.");
        if ((options.CertificateFile is null) != (options.KeyFile is null))
            throw new UsageException("--coordinator-cert and --coordinator-key go together.");
        if ((options.User is null) != (arguments.GetValue(CoordinatorPasswordFile) is null))
            throw new UsageException("--coordinator-user and --coordinator-password-file go together.");
        return options;
    }

    private static string PasswordIn(string file)
    {
        try
        {
            return File.ReadAllText(file).TrimEnd('\r', '\n');
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            throw new UnusableFileException(file, failure.Message);
        }
    }

    private static ReplicationOptions ReplicationIn(ParseResult arguments) => arguments.GetValue(DigestInterval) switch
    {
        null => new ReplicationOptions(),
        >= 0 and <= 525_600 and var minutes => new ReplicationOptions { DigestIntervalUs = minutes * 60_000_000L },
        _ => throw new UsageException("--digest-interval-minutes takes 0 to 525600."),
    };

    private static StoreOptions StorageIn(ParseResult arguments) => arguments.GetValue(JournalRetention) switch
    {
        null => new StoreOptions(),
        >= 0 and <= 1 << 20 and var retained => new StoreOptions { RetainedJournalBytes = (long)retained << 20 },
        _ => throw new UsageException("--journal-retention-mib takes 0 to 1048576."),
    };

    private static string ClusterIn(ParseResult arguments)
    {
        var name = arguments.GetRequiredValue(Cluster);
        return name.Length is > 0 and <= 64 && name.All(static c => char.IsAsciiLetterOrDigit(c) || c is '-' or '_' or '.')
            ? name
            : throw new UsageException("--cluster: a name has 1 to 64 letters, digits, '-', '_' and '.'.");
    }

    private static List<uint> NodesIn(string text)
    {
        var nodes = new List<uint>();
        foreach (var part in text.Split(','))
        {
            if (!uint.TryParse(part, NumberStyles.None, CultureInfo.InvariantCulture, out var node) || node == 0 || nodes.Contains(node))
                throw new UsageException($"--nodes: '{text}' is not a list of different ids from 1 on: 1,2,3");
            nodes.Add(node);
        }
        return nodes;
    }

    private static List<ReadOnlyMemory<byte>> SplitKeysIn(string? text)
    {
        var keys = new List<ReadOnlyMemory<byte>>();
        foreach (var part in text?.Split(',') ?? [])
        {
            var key = Encoding.UTF8.GetBytes(part);
            if (key.Length is 0 or > KeyBytesMax)
                throw new UsageException($"--split-at: a key has 1 to {KeyBytesMax} bytes.");
            // The runtime's mark for bytes that are no UTF-8.
            if (part.Contains('\uFFFD', StringComparison.Ordinal))
                throw new UsageException("--split-at: a key is not UTF-8.");
            if (keys.Count > 0 && keys[^1].Span.SequenceCompareTo(key) >= 0)
                throw new UsageException("--split-at: keys must rise.");
            keys.Add(key);
        }
        return keys;
    }

    /// <summary>A mistake in the arguments.</summary>
    private sealed class UsageException(string message) : Exception(message);
}
