using System.Text.Json;
using System.Text.Json.Serialization;
using KvCluster.Node.Coordination;

namespace KvCluster.Local;

/// <summary>
/// The folder of a local cluster: <c>node-N/</c> of each node, <c>coordinator/</c>, <c>run/</c> (logs and process ids), <c>local.json</c> (what
/// the cluster was made as) and <c>LOCK</c>, which is held while a launcher uses it and which the system gives back when that dies.
/// </summary>
/// <remarks>Opened by Program before anything listens. A folder that cannot be used is a <see cref="LauncherException"/>.</remarks>
internal sealed class DataFolder : IDisposable
{
    private const int FormatVersion = 1;
    private static readonly JsonSerializerOptions Json = new() { PropertyNamingPolicy = JsonNamingPolicy.SnakeCaseLower, WriteIndented = true };

    private readonly DirectoryLock _lock;

    private DataFolder(string path, DirectoryLock held, Shape shape)
    {
        Path = path;
        _lock = held;
        Nodes = shape.Nodes;
        SplitKeys = shape.SplitAt;
    }

    public string Path { get; }

    public int Nodes { get; }

    public IReadOnlyList<string> SplitKeys { get; }

    public string Run => System.IO.Path.Combine(Path, "run");

    public string Coordinator => System.IO.Path.Combine(Path, "coordinator");

    public string Node(int node) => System.IO.Path.Combine(Path, $"node-{node}");

    /// <summary>Opens the folder, or makes it with the shape asked for. A folder keeps the shape it was made with.</summary>
    public static DataFolder Open(LocalOptions options)
    {
        var path = options.Folder;
        DirectoryLock held;
        try
        {
            Directory.CreateDirectory(path);
            held = DirectoryLock.Take(path);
        }
        catch (DirectoryInUseException)
        {
            throw new LauncherException(ExitCodes.Unavailable, $"The data folder {path} is in use by another launcher.");
        }
        catch (Exception e) when (e is IOException or UnauthorizedAccessException)
        {
            throw new LauncherException(ExitCodes.Unavailable, $"The data folder {path} cannot be used: {e.Message}");
        }

        try
        {
            var shape = ReadOrMakeShape(options);
            Directory.CreateDirectory(System.IO.Path.Combine(path, "run"));
            return new DataFolder(path, held, shape);
        }
        catch
        {
            held.Dispose();
            throw;
        }
    }

    public void Dispose() => _lock.Dispose();

    private static Shape ReadOrMakeShape(LocalOptions options)
    {
        var file = System.IO.Path.Combine(options.Folder, "local.json");
        if (!File.Exists(file))
        {
            if (Directory.EnumerateDirectories(options.Folder).Any())
                throw new LauncherException(ExitCodes.OtherFormat, $"The data folder {options.Folder} holds something, and no local.json that says what: choose another with --data.");
            var made = new Shape(FormatVersion, options.Nodes ?? LocalOptions.NodesDefault, options.SplitKeys ?? []);
            // Renamed into place: a crash leaves all of it or nothing.
            File.WriteAllText(file + ".new", JsonSerializer.Serialize(made, Json));
            File.Move(file + ".new", file, overwrite: true);
            return made;
        }

        var shape = ReadShape(file);
        if (shape.Format != FormatVersion)
            throw new LauncherException(ExitCodes.OtherFormat, $"The data folder {options.Folder} has format {shape.Format}; this build reads and writes format {FormatVersion}.");
        if (options.Nodes is { } nodes && nodes != shape.Nodes)
            throw new LauncherException(ExitCodes.Usage, $"The data folder {options.Folder} holds a cluster of {shape.Nodes} nodes: leave out --nodes, or choose another folder with --data.");
        if (options.SplitKeys is { } keys && !keys.SequenceEqual(shape.SplitAt, StringComparer.Ordinal))
            throw new LauncherException(ExitCodes.Usage, $"The data folder {options.Folder} holds a cluster of {shape.SplitAt.Count + 1} shards split at other keys: leave out --shards and --split-at, or choose another folder with --data.");
        return shape;
    }

    private static Shape ReadShape(string file)
    {
        try
        {
            return JsonSerializer.Deserialize<Shape>(File.ReadAllText(file), Json) ?? throw new JsonException("empty");
        }
        catch (JsonException e)
        {
            throw new LauncherException(ExitCodes.OtherFormat, $"{file} cannot be read: {e.Message}");
        }
    }

    private sealed record Shape(
        [property: JsonRequired] int Format,
        [property: JsonRequired] int Nodes,
        [property: JsonRequired] IReadOnlyList<string> SplitAt);
}
