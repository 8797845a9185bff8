using System.Text.Json;
using System.Text.Json.Serialization;
using KvCluster.Node.Runtime;

namespace KvCluster.Local;

/// <summary>
/// The folder of a local cluster: <c>node-N/</c> of each node, <c>coordinator/</c>, <c>run/</c> (logs and process ids), <c>admin-token</c> (for the console), <c>local.json</c> (what
/// the cluster was made as) and <c>LOCK</c>, which is held while a launcher uses it and which the system gives back when that dies.
/// </summary>
/// <remarks>Opened by Program before anything listens. A folder that cannot be used is a <see cref="LauncherException"/>.</remarks>
internal sealed class DataFolder : IDisposable
{
    private const int FormatVersion = 1;
    private static readonly JsonSerializerOptions Json = new() { PropertyNamingPolicy = JsonNamingPolicy.SnakeCaseLower, WriteIndented = true };

    private readonly DirectoryLock _lock;
    private readonly Shape _shape;

    private DataFolder(string path, DirectoryLock held, Shape shape)
    {
        Path = path;
        _lock = held;
        _shape = shape;
    }

    public string Path { get; }

    public int Nodes => _shape.Nodes;

    public IReadOnlyList<string> SplitKeys => _shape.SplitAt;

    public string Run => System.IO.Path.Combine(Path, "run");

    public string Coordinator => System.IO.Path.Combine(Path, "coordinator");

    public string Node(int node) => System.IO.Path.Combine(Path, $"node-{node}");

    private string ShapeFile => ShapeFileIn(Path);

    /// <summary>Opens the folder, or makes it for the shape asked for. A folder has the shape that it was kept with.</summary>
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
            return new DataFolder(path, held, ReadOrMakeShape(options));
        }
        catch
        {
            held.Dispose();
            throw;
        }
    }

    /// <summary>Writes the shape down, once nothing stands in the way of a start: a refused one leaves the choice open.</summary>
    public void Keep()
    {
        if (!File.Exists(ShapeFile))
        {
            // Renamed into place: a crash leaves all of it or nothing. Before any folder, which without it would count as somebody else's.
            File.WriteAllText(ShapeFile + ".new", JsonSerializer.Serialize(_shape, Json));
            File.Move(ShapeFile + ".new", ShapeFile, overwrite: true);
        }

        Directory.CreateDirectory(Run);
    }

    public void Dispose() => _lock.Dispose();

    private static string ShapeFileIn(string folder) => System.IO.Path.Combine(folder, "local.json");

    private static Shape ReadOrMakeShape(LocalOptions options)
    {
        var file = ShapeFileIn(options.Folder);
        if (!File.Exists(file))
        {
            if (Directory.EnumerateDirectories(options.Folder).Any())
                throw new LauncherException(ExitCodes.OtherFormat, $"The data folder {options.Folder} holds something, and no local.json that says what: choose another with --data.");
            return new Shape(FormatVersion, options.Nodes ?? LocalOptions.NodesDefault, options.SplitKeys ?? []);
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
