using System.Globalization;
using System.Text;
using Spectre.Console;

namespace KvCluster.Cli;

/// <summary>
/// What a command prints on standard output: bytes unchanged, or JSON with stable names. Buffered, and flushed when the command ends. One thread at a time.
/// </summary>
/// <param name="form">What `--output` names.</param>
/// <param name="isTerminal">Whether a terminal shows it; null: look.</param>
internal sealed class Output(OutputForm form, bool? isTerminal = null)
{
    private const int BufferBytes = 1 << 16;
    private const int WidthMin = 80;
    private const int WidthWithoutTerminal = 400;

    private readonly bool _isTerminal = isTerminal ?? !Console.IsOutputRedirected;
    private readonly StandardOutput _standard = new();
    private readonly byte[] _buffer = new byte[BufferBytes];
    private int _buffered;

    /// <summary>Whether `--output json` was given.</summary>
    public bool IsJson => form == OutputForm.Json;

    /// <summary>Whether `--output value` was given: text, and of keys and their values only the values.</summary>
    public bool IsValueOnly => form == OutputForm.Value;

    /// <exception cref="OutputClosedException">Standard output cannot be written.</exception>
    public void Bytes(ReadOnlySpan<byte> bytes)
    {
        if (bytes.Length > BufferBytes - _buffered)
            Flush();
        if (bytes.Length > BufferBytes)
        {
            Write(bytes);
            return;
        }

        bytes.CopyTo(_buffer.AsSpan(_buffered));
        _buffered += bytes.Length;
    }

    /// <summary>
    /// Prints bytes of a key, a value or a member: unchanged into a file or a pipe, and on a terminal as <see cref="Text.ForTerminal"/>, because whoever wrote
    /// them could otherwise change its title, colours and keys.
    /// </summary>
    /// <inheritdoc cref="Bytes"/>
    public void Data(ReadOnlySpan<byte> bytes) => Bytes(_isTerminal ? Text.ForTerminal(bytes) : bytes);

    /// <summary>
    /// Prints a key, a value or a member as one of several in a line: unchanged, or quoted as <see cref="Text.Quoted"/> if neither tabs between columns nor
    /// lines, nor the terminal that shows them, could carry it.
    /// </summary>
    /// <param name="isRaw">Unchanged in any case.</param>
    /// <inheritdoc cref="Bytes"/>
    public void Field(ReadOnlySpan<byte> bytes, bool isRaw) => Bytes(isRaw || Text.IsPlain(bytes, _isTerminal) ? bytes : Text.Quoted(bytes));

    /// <summary>Prints a line for people. Control characters, which a node may have sent, do not reach the terminal.</summary>
    /// <inheritdoc cref="Bytes"/>
    public void Line(string text) => Bytes(Encoding.UTF8.GetBytes(OneLine.Of(text) + "\n"));

    /// <summary>Prints several lines, all of this program's own text.</summary>
    /// <inheritdoc cref="Bytes"/>
    public void Lines(string text) => Bytes(Encoding.UTF8.GetBytes(OneLine.Of(text, keepsLineFeeds: true) + "\n"));

    /// <summary>Prints a table in plain characters, as wide as the terminal.</summary>
    /// <inheritdoc cref="Bytes"/>
    public void Table(Table table)
    {
        var text = new StringWriter(CultureInfo.InvariantCulture);
        var console = AnsiConsole.Create(
            new AnsiConsoleSettings { Out = new AnsiConsoleOutput(text), Ansi = AnsiSupport.No, ColorSystem = ColorSystemSupport.NoColors });
        console.Profile.Width = Console.IsOutputRedirected ? WidthWithoutTerminal : Math.Max(WidthMin, Console.WindowWidth);
        console.Write(table);
        Bytes(Encoding.UTF8.GetBytes(OneLine.Of(text.ToString(), keepsLineFeeds: true)));
    }

    /// <summary>Prints one JSON document on a line of its own.</summary>
    /// <inheritdoc cref="Bytes"/>
    public void Document(Fields document)
    {
        Bytes(document.ToUtf8());
        Bytes("\n"u8);
    }

    /// <inheritdoc cref="Bytes"/>
    public void Flush()
    {
        // If this write fails, a later one would fail too, so the buffer is emptied first.
        var bytes = _buffer.AsSpan(0, _buffered);
        _buffered = 0;
        Write(bytes);
    }

    private void Write(ReadOnlySpan<byte> bytes)
    {
        try
        {
            _standard.Write(bytes);
        }
        catch (IOException e)
        {
            throw new OutputClosedException(e);
        }
    }
}

/// <summary>What `--output` names.</summary>
internal enum OutputForm
{
    Text,
    Json,

    /// <summary>As text, and of keys and their values only the values.</summary>
    Value,
}
