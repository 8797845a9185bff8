namespace KvCluster.Cli.Shell;

/// <summary>A line that is being typed, its cursor, and the lines before it, which can be fetched and changed. One thread, no terminal.</summary>
internal sealed class EditedLine
{
    private readonly IReadOnlyList<string> _history;

    /// <summary>The line of which the history was left, to come back to it.</summary>
    private string _newest = "";
    private int _place;

    /// <param name="history">Earlier lines, the newest last.</param>
    public EditedLine(IReadOnlyList<string> history) => (_history, _place) = (history, history.Count);

    /// <summary>The text.</summary>
    public string Text { get; private set; } = "";

    /// <summary>How many characters are before the cursor.</summary>
    public int Cursor { get; private set; }

    /// <summary>What is before the cursor.</summary>
    public string Before => Text[..Cursor];

    public void Insert(string typed)
    {
        Text = Text.Insert(Cursor, typed);
        Cursor += typed.Length;
    }

    public void Left() => Cursor -= LengthBefore();

    public void Right() => Cursor += LengthBehind();

    public void ToBegin() => Cursor = 0;

    public void ToEnd() => Cursor = Text.Length;

    public void WordLeft() => Cursor = WordBefore();

    public void Backspace() => RemoveFrom(Cursor - LengthBefore());

    public void Delete() => Text = Text.Remove(Cursor, LengthBehind());

    public void RemoveWord() => RemoveFrom(WordBefore());

    public void RemoveToBegin() => RemoveFrom(0);

    public void RemoveToEnd() => Text = Before;

    /// <summary>Fetches the line before in the history.</summary>
    public void Older()
    {
        if (_place > 0)
            Fetch(_place - 1);
    }

    /// <summary>Fetches the line after in the history, at last the one that was being typed.</summary>
    public void Newer()
    {
        if (_place < _history.Count)
            Fetch(_place + 1);
    }

    /// <summary>Puts a longer word in the place of the one before the cursor.</summary>
    public void Complete(string word)
    {
        RemoveFrom(Before.LastIndexOf(' ') + 1);
        Insert(word);
    }

    private void Fetch(int place)
    {
        if (_place == _history.Count)
            _newest = Text;
        _place = place;
        Text = place == _history.Count ? _newest : _history[place];
        ToEnd();
    }

    private void RemoveFrom(int begin)
    {
        Text = Text.Remove(begin, Cursor - begin);
        Cursor = begin;
    }

    private int WordBefore() => Before.TrimEnd(' ').LastIndexOf(' ') + 1;

    // A character may be two of the text's.
    private int LengthBefore() => Cursor == 0 ? 0 : Cursor > 1 && char.IsSurrogatePair(Text, Cursor - 2) ? 2 : 1;

    private int LengthBehind() => Cursor == Text.Length ? 0 : Cursor + 1 < Text.Length && char.IsSurrogatePair(Text, Cursor) ? 2 : 1;
}
