using System.Text;
using System.Text.Json;
using YamlDotNet.Core;
using YamlDotNet.Core.Events;

namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>
/// A file with settings: one mapping of names to texts, numbers, switches or lists, as JSON (comments allowed) if it begins with a brace, otherwise as YAML.
/// A null or absent value is not set. Reads the whole file and keeps every mistake with its line.
/// </summary>
internal sealed class SettingsFile
{
    private const int BytesMax = 1 << 20;

    private readonly string _path;
    private readonly Dictionary<string, SettingValue> _values = [];
    private readonly List<string> _mistakes = [];

    private SettingsFile(string path) => _path = path;

    /// <summary>By names as written, known or not.</summary>
    public IReadOnlyDictionary<string, SettingValue> Values => _values;

    public IReadOnlyList<string> Mistakes => _mistakes;

    /// <summary>Whether the file could be read to its end. If not, <see cref="Values"/> may lack names that it has.</summary>
    public bool IsUsable { get; private set; } = true;

    /// <summary>Reads a file. A file that cannot be read is a mistake like others.</summary>
    public static SettingsFile Load(string path)
    {
        var file = new SettingsFile(path);
        try
        {
            if (Directory.Exists(path))
                file.Refuse($"{path}: is a directory.");
            else if (new FileInfo(path).Length > BytesMax)
                file.Refuse($"{path}: is larger than {BytesMax >> 10} KiB.");
            else
                file.Read(File.ReadAllText(path, new UTF8Encoding(false, throwOnInvalidBytes: true)));
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            file.Refuse($"{path}: cannot be read: {failure.Message}");
        }
        catch (DecoderFallbackException)
        {
            file.Refuse($"{path}: is not UTF-8.");
        }
        return file;
    }

    private void Refuse(string mistake)
    {
        IsUsable = false;
        _mistakes.Add(mistake);
    }

    private void Read(string text)
    {
        try
        {
            if (text.TrimStart().StartsWith('{'))
                ReadJson(Encoding.UTF8.GetBytes(text));
            else
                ReadYaml(text);
        }
        catch (JsonException failure)
        {
            Refuse($"{_path}:{failure.LineNumber + 1}: is not JSON: {failure.Message.Split(" LineNumber")[0]}");
        }
        catch (YamlException failure)
        {
            Refuse($"{_path}:{failure.Start.Line}: is not YAML: {failure.Message}");
        }
    }

    private void ReadJson(byte[] text)
    {
        var json = new Utf8JsonReader(text, new JsonReaderOptions { CommentHandling = JsonCommentHandling.Skip, AllowTrailingCommas = true });
        json.Read();
        while (json.Read() && json.TokenType == JsonTokenType.PropertyName)
        {
            var name = json.GetString()!;
            var line = LineOf(text, json.TokenStartIndex);
            json.Read();
            if (json.TokenType == JsonTokenType.StartArray)
            {
                var items = new List<string?>();
                while (json.Read() && json.TokenType != JsonTokenType.EndArray)
                    items.Add(ScalarOf(ref json));
                AddList(name, items, line);
            }
            else if (json.TokenType != JsonTokenType.Null)
            {
                Add(name, ScalarOf(ref json), line);
            }
        }
        // Anything after the mapping is refused here.
        while (json.Read())
        {
        }
    }

    // Returns null if it is not a scalar.
    private static string? ScalarOf(ref Utf8JsonReader json)
    {
        switch (json.TokenType)
        {
            case JsonTokenType.String:
                return json.GetString();
            case JsonTokenType.StartObject or JsonTokenType.StartArray:
                json.Skip();
                return null;
            default:
                return Encoding.UTF8.GetString(json.ValueSpan);
        }
    }

    private static int LineOf(byte[] text, long position) => 1 + text.AsSpan(0, (int)position).Count((byte)'\n');

    private void ReadYaml(string text)
    {
        var yaml = new Parser(new StringReader(text));
        yaml.Consume<StreamStart>();
        if (!yaml.TryConsume<DocumentStart>(out _))
            return;
        if (yaml.TryConsume<Scalar>(out var only))
        {
            // A file with only comments is parsed as one empty scalar.
            if (only.Value.Length > 0)
                Refuse($"{_path}:{only.Start.Line}: is not a mapping of names to values.");
        }
        else if (yaml.Accept<MappingStart>(out _))
        {
            ReadMapping(yaml);
        }
        else
        {
            Refuse($"{_path}: is not a mapping of names to values.");
            return;
        }
        yaml.Consume<DocumentEnd>();
        if (yaml.Accept<DocumentStart>(out var second))
            _mistakes.Add($"{_path}:{second.Start.Line}: contains a second document.");
    }

    private void ReadMapping(Parser yaml)
    {
        yaml.Consume<MappingStart>();
        while (!yaml.TryConsume<MappingEnd>(out _))
        {
            var name = yaml.Consume<Scalar>();
            var line = (int)name.Start.Line;
            if (yaml.TryConsume<SequenceStart>(out _))
            {
                var items = new List<string?>();
                while (!yaml.TryConsume<SequenceEnd>(out _))
                    items.Add(ScalarOf(yaml));
                AddList(name.Value, items, line);
            }
            else if (!IsNull(yaml))
            {
                Add(name.Value, ScalarOf(yaml), line);
            }
        }
    }

    private static string? ScalarOf(Parser yaml)
    {
        if (yaml.TryConsume<Scalar>(out var scalar))
            return scalar.Value;
        yaml.SkipThisAndNestedEvents();
        return null;
    }

    private static bool IsNull(Parser yaml)
    {
        if (!yaml.Accept<Scalar>(out var scalar) || scalar is not { Style: ScalarStyle.Plain, Value: "" or "~" or "null" })
            return false;
        yaml.MoveNext();
        return true;
    }

    private void AddList(string name, List<string?> items, int line)
    {
        if (items.FirstOrDefault(item => item?.Contains(',') == true) is { } wrong)
            _mistakes.Add($"{_path}:{line}: {name}: '{wrong}' contains a comma, which separates items.");
        else
            Add(name, items.Contains(null) ? null : string.Join(',', items), line);
    }

    private void Add(string name, string? text, int line)
    {
        if (text is null)
            _mistakes.Add($"{_path}:{line}: {name}: is neither a value nor a list of values; names are flat, such as tls-cert.");
        else if (!_values.TryAdd(name, new SettingValue(text, $"{_path}:{line}: {name}")))
            _mistakes.Add($"{_path}:{line}: {name}: is set a second time.");
    }
}
